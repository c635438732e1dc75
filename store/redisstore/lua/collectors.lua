-- Lists collectors of this home shard by id.
--
-- KEYS[1]  the shard key
-- ARGV     the id to begin after ('' = the first), limit
-- Returns  now, the last id looked at ('' = the end), and per collector: id,
--          session, first, seen, info
-- Cost     O(log n + limit)
--
-- flags: no-writes
-- uses: collector
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local ids, out = call('ZRANGEBYLEX', COLLECTORS, from, '+', 'LIMIT', 0, ARGV[2]), {}
local keys = {}
for i, id in ipairs(ids) do keys[i] = collector_key(id) end
for i, packed in ipairs(#ids > 0 and call('MGET', unpack(keys)) or {}) do
  local c = unpack_collector(packed)
  if c and c[3] + DAY > now then out[#out + 1] = { ids[i], c[1], decimal(c[2]), decimal(c[3]), c[5] } end
end
return { now, #ids == tonumber(ARGV[2]) and ids[#ids] or '', out }
