-- What a shard takes in of a source.

local GATE_ARGS = 12 -- uid, id, version, and so on

local function read_gate(i)
  return {
    id = ARGV[i + 1], version = tonumber(ARGV[i + 2]), pool = ARGV[i + 3],
    priority = tonumber(ARGV[i + 4]), held = tonumber(ARGV[i + 5]), deleted = tonumber(ARGV[i + 6]),
    limit = tonumber(ARGV[i + 7]), lease = tonumber(ARGV[i + 8]), hold = tonumber(ARGV[i + 9]),
    joined = tonumber(ARGV[i + 10]), remember = tonumber(ARGV[i + 11]),
  }
end

-- Gives the source of the gate at position i, after taking the gate when it is newer than
-- what is held, which it seldom is; and the version of the gate.
local function take_gate(i)
  local uid, version = ARGV[i], tonumber(ARGV[i + 2])
  local s = get_source(uid)
  if s.known and s.version >= version then return s, version end
  local g = read_gate(i)
  call('HSET', source_key(uid), 'gate', pack_gate(g))
  -- A deleted source without lanes is remembered for a day (dispatch.CanceledMemory),
  -- so that what comes late for it is refused.
  if g.deleted == 1 and call('EXISTS', lanes_key(uid)) == 0 then call('PEXPIRE', source_key(uid), DAY) end
  sources[uid] = nil
  return get_source(uid), version
end
