-- Counts by state and of events, changed while a script runs and written once at its
-- end, packed: per shard in the shard key, per source in its key.
local counts -- of the shard, false = not read
local fields = {} -- what else is written to the shard key, flat
local rules_version, holds_version -- of the queue rules, and of the holds
local get_source -- in lane.lua

local pack_counts, read_shard, shard_counts, tally, tally_source
do
  -- Counts by state; of events; and the number of the last lane.
  local COUNTS = '>i6i6i6i6i6i6i6i6i6i6i6i6'

  -- In one constructor, whose table has room for 16 fields.
  local function read_counts(packed)
    local scheduled, ready, leased, done, dead, canceled, granted, settled, expired, orphaned, dropped, lane = struct.unpack(COUNTS, packed or ZEROS)
    return {
      scheduled = scheduled, ready = ready, leased = leased, done = done, dead = dead, canceled = canceled, granted = granted,
      settled = settled, expired = expired, orphaned = orphaned, dropped = dropped, lane = lane, changed = false,
    }
  end

  function pack_counts(c)
    return struct.pack(COUNTS, c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.granted, c.settled, c.expired, c.orphaned,
      c.dropped, c.lane)
  end

  -- Reads counts of the shard with the versions of rules and holds, and other fields of its
  -- key, whose values are returned from the fourth on.
  function read_shard(...)
    local found = call('HMGET', SHARD, 'rules', 'holds', 'counts', ...)
    rules_version, holds_version, counts = tonumber(found[1] or 0), tonumber(found[2] or 0), read_counts(found[3])
    return found
  end

  function shard_counts()
    counts = counts or read_counts(call('HGET', SHARD, 'counts'))
    return counts
  end

  local function add_count(c, field, n)
    if n ~= 0 then c[field], c.changed = c[field] + n, true end
  end

  function tally(field, n) add_count(counts or shard_counts(), field, n) end

  -- Counts what is kept of a source alone.
  function tally_source(uid, field, n) add_count(get_source(uid).counts, field, n) end
end

local function count(uid, field, n)
  tally(field, n)
  tally_source(uid, field, n)
end

-- at each call
counts, rules_version = false, nil
if fields[1] then fields = {} end
