-- What the shard counts, and the versions of rules and holds that it has: strings, so that
-- one command reads them with what else a script begins with, and one writes all at its end.

-- Counts by state; of events; the number of the last source; the last fence; and the last step
-- of time in which client tokens were used (token.lua).
local COUNTS = '>i6i6i6i6i6i6i6i6i6i6i6i6I8i6'
-- Behind the counts the settings that a call needed last: the version of settings at which
-- they were read, their name, and what is filed under it.
local SETTINGS = '>I6Bc0I2c0'

local counts -- false = not read

function shard.begin() counts, shard.rules, shard.holds = false, nil, nil end

local function read_counts(packed)
  local scheduled, ready, leased, done, dead, canceled, granted, settled_, expired, orphaned, dropped, sources, fence, used, at =
    parse(COUNTS, packed or ZEROS)
  counts = {
    scheduled = scheduled, ready = ready, leased = leased, done = done, dead = dead, canceled = canceled, granted = granted,
    settled = settled_, expired = expired, orphaned = orphaned, dropped = dropped, sources = sources, fence = fence, used = used,
    changed = false, version = -1, name = '', filed = '',
  }
  if packed and #packed >= at then counts.version, counts.name, counts.filed = parse(SETTINGS, packed, at) end
end

-- Reads counts and versions, and other keys of strings, if given, whose values are returned,
-- the first of them at the first place.
function shard.read(others)
  local keys = others or {}
  local n = #keys
  keys[n + 1], keys[n + 2], keys[n + 3] = key.version('rules'), key.version('holds'), SHARD
  local found = call('MGET', unpack(keys))
  shard.rules, shard.holds = tonumber(found[n + 1] or 0), tonumber(found[n + 2] or 0)
  read_counts(found[n + 3])
  return found
end

function shard.counts()
  if not counts then shard.read() end
  return counts
end

-- The version of what queues keep of rules and holds: both of theirs only rise.
function shard.settings_version()
  if not shard.rules then shard.read() end
  return shard.rules + shard.holds
end

function shard.tally(field, n)
  local c = counts or shard.counts()
  if n ~= 0 then c[field], c.changed = c[field] + n, true end
end

-- The settings filed under a name, if those were needed last and are still as they were; and
-- notes that these are needed, which is written with the counts.
function shard.filed(name)
  local c = counts or shard.counts()
  return c.name == name and c.version == shard.settings_version() and c.filed
end
function shard.note_filed(name, filed)
  local c = counts or shard.counts()
  c.version, c.name, c.filed = shard.settings_version(), name, filed
end

function shard.save()
  local c = counts
  if c and c.changed then
    write(SHARD, pack(COUNTS, c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.granted, c.settled, c.expired,
      c.orphaned, c.dropped, c.sources, c.fence, c.used) .. (c.version >= 0 and pack(SETTINGS, c.version, #c.name, c.name, #c.filed, c.filed) or ''))
    c.changed = false
  end
end

-- Counts of one shard (dispatch.Store.Stats).
--
-- ARGV     none
-- Returns  scheduled, ready, leased, done, dead, canceled, granted, settled, expired,
--          orphaned, dropped, queues, time since the deadline of the most overdue lease in
--          ms, collectors that are present, rest of the grace after an outage in ms, lost
--          calls (acknowledge.lua)
-- Cost     O(log n); at most 100 leases are read
-- flags: no-writes
function scripts.stats()
  local GONE_AFTER = 45000 -- dispatch.GoneAfter
  local grace = tonumber(call('HGET', key.keeper, 'grace') or 0)
  local c, seen = shard.counts(), call('ZCOUNT', P .. 'seen', decimal(now - GONE_AFTER), '+inf')
  return { c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.granted, c.settled, c.expired, c.orphaned, c.dropped,
    call('ZCARD', key.queues) - call('ZCOUNT', key.idle, '-inf', now), lease.overdue(), seen, max(0, grace - now),
    tonumber(call('HGET', key.acked, 'lost') or 0) }
end
