-- What a shard takes in of a source.

-- Reads the 12 arguments of a gate from position i.
local function read_gate(i)
  return {
    uid = ARGV[i], id = ARGV[i + 1], version = tonumber(ARGV[i + 2]), pool = ARGV[i + 3],
    priority = tonumber(ARGV[i + 4]), paused = tonumber(ARGV[i + 5]), deleted = tonumber(ARGV[i + 6]),
    limit = tonumber(ARGV[i + 7]), lease = tonumber(ARGV[i + 8]), hold = tonumber(ARGV[i + 9]),
    joined = tonumber(ARGV[i + 10]), remember = tonumber(ARGV[i + 11]),
  }
end

-- Gives the source, after taking the gate when it is newer than what is held.
local function take_gate(g)
  local s = get_source(g.uid)
  if s.known and s.version >= g.version then return s end
  call('HSET', source_key(g.uid), 'gate', pack_gate(g))
  -- A deleted source without lanes is remembered for a day (dispatch.CanceledMemory),
  -- so that what comes late for it is refused.
  if g.deleted == 1 and call('EXISTS', lanes_key(g.uid)) == 0 then call('PEXPIRE', source_key(g.uid), DAY) end
  sources[g.uid] = nil
  return get_source(g.uid)
end
