-- Keeps a hold of a pool or of collectors in a shard, or removes it.
--
-- KEYS[1]  the shard key
-- ARGV     its key (dispatch.Hold.Key), the pool ('' = of collectors); and to keep it:
--          until in ms, the hold (JSON), how many there may be
-- Returns  1 when it is kept, or has held until it was removed; else 0: there are too
--          many, or it was none
-- Cost     O(holds)
local key, pool, limit = ARGV[1], ARGV[2], tonumber(ARGV[5])
local holds = P .. (pool == '' and 'drains' or 'paused')
local all = call('HGETALL', holds)
for i = 1, #all, 2 do
  if tonumber(string.match(all[i + 1], '^%d+')) <= now then
    call('HDEL', holds, all[i])
    if pool ~= '' then call('HDEL', SHARD, 'pause:' .. string.match(all[i], '^pool%z([^%z]*)')) end
  end
end
if not limit then
  local held = call('HDEL', holds, key)
  if pool ~= '' then
    call('HDEL', SHARD, 'pause:' .. pool)
    tell_of(pool, now)
    finish(true)
  end
  return held
end
if call('HEXISTS', holds, key) == 0 and call('HLEN', holds) >= limit then return 0 end
call('HSET', holds, key, ARGV[3] .. '\n' .. ARGV[4])
if pool ~= '' then call('HSET', SHARD, 'pause:' .. pool, ARGV[3]) end
return 1
