-- Removes collectors of this home shard that were not seen since an instant.
--
-- KEYS[1]  the shard key
-- ARGV     instant in ms, limit
-- Returns  how many were removed
-- Cost     O(log n) a collector
--
-- uses: collector
-- Those that were silent for a day count as gone already.
for _, id in ipairs(call('ZRANGEBYSCORE', SEEN, '-inf', decimal(now - DAY), 'LIMIT', 0, 1000)) do forget_collector(id) end
local ids = call('ZRANGEBYSCORE', SEEN, '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do forget_collector(id) end
return #ids
