-- Reads pools of a shard (dispatch.Queues.ListPools).
--
-- KEYS[1]  the shard key
-- ARGV     a pool ('' = all), the pool to begin after ('' = the first), limit
-- Returns  flat, ascending by name, per pool that has queues with waiting tasks: name,
--          queues in pool open and those due in pool wait, the others in pool wait
-- Cost     O(n log n) in pools
--
-- flags: no-writes
local names, out = ARGV[1] ~= '' and { ARGV[1] } or call('SMEMBERS', POOLS), {}
table.sort(names, before)
for _, name in ipairs(names) do
  if before(ARGV[2], name) and #out < 3 * tonumber(ARGV[3]) then
    local due = call('ZCOUNT', pool_wait_key(name), '-inf', now)
    local open, waiting = call('ZCARD', pool_open_key(name)) + due, call('ZCARD', pool_wait_key(name)) - due
    local n = #out
    if open + waiting > 0 then out[n + 1], out[n + 2], out[n + 3] = name, open, waiting end
  end
end
return out
