-- What the shard counts, and the versions of rules and holds that it has: fields of the
-- shard key, changed while a script runs and written once at its end.

-- Counts by state; of events; and the number of the last source.
local COUNTS = '>i6i6i6i6i6i6i6i6i6i6i6i6'

local counts, fields -- false = not read; what else is written, flat

function shard.begin() counts, fields, shard.rules, shard.holds = false, {}, nil, nil end

local function read_counts(packed)
  local scheduled, ready, leased, done, dead, canceled, granted, settled_, expired, orphaned, dropped, sources = parse(COUNTS, packed or ZEROS)
  return {
    scheduled = scheduled, ready = ready, leased = leased, done = done, dead = dead, canceled = canceled, granted = granted,
    settled = settled_, expired = expired, orphaned = orphaned, dropped = dropped, sources = sources, changed = false,
  }
end

-- Reads counts and versions, and other fields, whose values are returned from the fourth on.
function shard.read(...)
  local found = call('HMGET', SHARD, 'rules', 'holds', 'counts', ...)
  shard.rules, shard.holds, counts = tonumber(found[1] or 0), tonumber(found[2] or 0), read_counts(found[3])
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

-- Notes a field to be written.
function shard.set(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end

function shard.save()
  local c = counts
  if c and c.changed then
    shard.set('counts', pack(COUNTS, c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.granted, c.settled, c.expired,
      c.orphaned, c.dropped, c.sources))
    c.changed = false
  end
  if fields[1] then
    call('HSET', SHARD, unpack(fields))
    fields = {}
  end
end

-- Counts of one shard (dispatch.Store.Stats).
--
-- ARGV     none
-- Returns  scheduled, ready, leased, done, dead, canceled, granted, settled, expired,
--          orphaned, dropped, queues, time since the deadline of the most overdue lease in
--          ms, collectors that are present, rest of the grace after an outage in ms
-- Cost     O(log n); at most 100 leases are read
-- flags: no-writes
function scripts.stats()
  local GONE_AFTER = 45000 -- dispatch.GoneAfter
  local f = shard.read('grace')
  local c, seen = counts, call('ZCOUNT', P .. 'seen', decimal(now - GONE_AFTER), '+inf')
  return { c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.granted, c.settled, c.expired, c.orphaned, c.dropped,
    call('ZCARD', key.queues) - call('ZCOUNT', key.idle, '-inf', now), lease.overdue(), seen, max(0, (tonumber(f[4] or nil) or 0) - now) }
end
