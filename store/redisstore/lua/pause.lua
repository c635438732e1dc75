-- Pauses a pool in a shard, or resumes it.
--
-- KEYS[1]  the shard key
-- ARGV     pool; and to pause it: until in ms, the gate (JSON), how many pools may
--          be paused
-- Returns  1, or 0 when too many are paused
-- Cost     O(paused pools)
local pool, paused = ARGV[1], P .. 'paused'
if ARGV[2] then
  for _, name in ipairs(call('HKEYS', paused)) do
    if tonumber(call('HGET', SHARD, 'pause:' .. name) or '0') <= now then
      call('HDEL', SHARD, 'pause:' .. name)
      call('HDEL', paused, name)
    end
  end
  if call('HEXISTS', paused, pool) == 0 and call('HLEN', paused) >= tonumber(ARGV[4]) then return 0 end
  call('HSET', SHARD, 'pause:' .. pool, ARGV[2])
  call('HSET', paused, pool, ARGV[3])
else
  call('HDEL', SHARD, 'pause:' .. pool)
  call('HDEL', paused, pool)
  tell_of(pool, now)
  finish(true)
end
return 1
