-- Removes collectors of this home shard that were not seen since an instant
-- (dispatch.Collectors.Forget).
--
-- KEYS[1]  the shard key
-- ARGV     instant in ms, limit
-- Returns  how many were removed
-- Cost     O(log n) a collector
--
-- uses: collector
-- Those that were silent for a day count as gone already.
local gone = decimal(now - DAY)
for _, set in ipairs({ SEEN, ENDED }) do
  for _, id in ipairs(call('ZRANGEBYSCORE', set, '-inf', gone, 'LIMIT', 0, 1000)) do forget_collector(id) end
end
local left = tonumber(ARGV[2])
for _, set in ipairs({ SEEN, ENDED }) do
  local ids = call('ZRANGEBYSCORE', set, '-inf', '(' .. ARGV[1], 'LIMIT', 0, left)
  for _, id in ipairs(ids) do forget_collector(id) end
  left = left - #ids
end
return tonumber(ARGV[2]) - left
