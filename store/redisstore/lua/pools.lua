-- Reads pools of a shard.
--
-- KEYS[1]  the shard key
-- ARGV     a pool; or '' and the pool to begin after ('' = the first), limit
-- Returns  flat, ascending by name, of each that has queues with waiting tasks or is
--          paused: name, queues in pool open and those due in pool wait, the others
--          in pool wait, its pause (JSON, '' = none)
-- Cost     O(n log n) in pools
--
-- flags: no-writes
local names, gates = {}, {}
if ARGV[1] ~= '' then
  names[1], gates[ARGV[1]] = ARGV[1], call('HGET', P .. 'paused', ARGV[1])
else
  names = call('SMEMBERS', POOLS)
  local seen, paused = {}, call('HGETALL', P .. 'paused')
  for _, name in ipairs(names) do seen[name] = true end
  for i = 1, #paused, 2 do
    gates[paused[i]] = paused[i + 1]
    if not seen[paused[i]] then names[#names + 1] = paused[i] end
  end
  table.sort(names, before)
end
local out = {}
for _, name in ipairs(names) do
  if ARGV[1] ~= '' or (before(ARGV[2], name) and #out < 4 * tonumber(ARGV[3])) then
    local due = call('ZCOUNT', pool_wait_key(name), '-inf', now)
    local open, waiting = call('ZCARD', pool_open_key(name)) + due, call('ZCARD', pool_wait_key(name)) - due
    local gate = gates[name] and tonumber(call('HGET', SHARD, 'pause:' .. name) or '0') > now and gates[name] or ''
    if open + waiting > 0 or gate ~= '' then
      local n = #out
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = name, open, waiting, gate
    end
  end
end
return out
