-- Reads what collectors tell of themselves (dispatch.Collectors.CollectorInfos).
--
-- KEYS[1]  the shard key of the collectors' home shard
-- ARGV     the ids of collectors
-- Returns  per id: info (JSON; '' = its session has told nothing)
-- Cost     O(ids)
--
-- flags: no-writes
-- uses: collector
local out = {}
for i, id in ipairs(ARGV) do
  local c = unpack_collector(call('GET', collector_key(id)))
  out[i] = c and c[3] + DAY > now and c[5] or ''
end
return out
