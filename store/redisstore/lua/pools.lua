-- Reads pools of a shard.
--
-- KEYS[1]  the shard key
-- ARGV     a pool ('' = all), the pool to begin after ('' = the first), limit
-- Returns  flat, ascending by name, of each that has queues with waiting tasks or is
--          paused: name, queues in pool open and those due in pool wait, the others
--          in pool wait, its hold (JSON, '' = none)
-- Cost     O(n log n) in pools
--
-- flags: no-writes
local names, gates = {}, {}

-- A hold (JSON) as the hash keeps it; '' when it is over.
local function hold_of(kept)
  local till, encoded = string.match(kept or '0\n', '^(%d+)\n(.*)$')
  return tonumber(till) > now and encoded or ''
end

if ARGV[1] ~= '' then
  names[1], gates[ARGV[1]] = ARGV[1], hold_of(call('HGET', P .. 'paused', 'pool\0' .. ARGV[1] .. '\0default'))
else
  names = call('SMEMBERS', POOLS)
  local seen, paused = {}, call('HGETALL', P .. 'paused')
  for _, name in ipairs(names) do seen[name] = true end
  for i = 1, #paused, 2 do
    local name = string.match(paused[i], '^pool%z([^%z]*)')
    gates[name] = hold_of(paused[i + 1])
    if not seen[name] then names[#names + 1] = name end
  end
  table.sort(names, before)
end
local out = {}
for _, name in ipairs(names) do
  if before(ARGV[2], name) and #out < 4 * tonumber(ARGV[3]) then
    local due = call('ZCOUNT', pool_wait_key(name), '-inf', now)
    local open, waiting = call('ZCARD', pool_open_key(name)) + due, call('ZCARD', pool_wait_key(name)) - due
    local gate = gates[name] or ''
    if open + waiting > 0 or gate ~= '' then
      local n = #out
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = name, open, waiting, gate
    end
  end
end
return out
