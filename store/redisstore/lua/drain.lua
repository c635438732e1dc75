-- Keeps a drain of collectors, or removes it.
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     its name; and to keep it: how many there may be, until in ms, the drain (JSON)
-- Returns  1 when it is kept, or has held until it was removed; else 0: there are too
--          many, or it was none
-- Cost     O(drains)
local name, limit, drains = ARGV[1], tonumber(ARGV[2]), P .. 'drains'
local all = call('HGETALL', drains)
for i = 1, #all, 2 do
  if tonumber(string.match(all[i + 1], '^%d+')) <= now then call('HDEL', drains, all[i]) end
end
if not limit then return call('HDEL', drains, name) end
if call('HEXISTS', drains, name) == 0 and call('HLEN', drains) >= limit then return 0 end
call('HSET', drains, name, ARGV[3] .. '\n' .. ARGV[4])
return 1
