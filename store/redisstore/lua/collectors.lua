-- Reads collectors of this home shard, by id or a range of ids.
--
-- KEYS[1]  the shard key
-- ARGV     'ids' and ids; or 'after', the id to begin after ('' = the first), limit
-- Returns  the last id read ('' = the end), and per known collector: id,
--          session, first, seen, info (JSON; '' = its session has sent no beat)
-- Cost     O(log n + limit)
--
-- flags: no-writes
-- uses: collector
local ids, last, out, keys = {}, '', {}, {}
if ARGV[1] == 'ids' then
  for i = 2, #ARGV do ids[i - 1] = ARGV[i] end
else
  ids = call('ZRANGEBYLEX', COLLECTORS, ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
  if #ids == tonumber(ARGV[3]) then last = ids[#ids] end
end
for i, id in ipairs(ids) do keys[i] = collector_key(id) end
for i, packed in ipairs(#ids > 0 and call('MGET', unpack(keys)) or {}) do
  local c = unpack_collector(packed)
  if c and c[3] + DAY > now then out[#out + 1] = { ids[i], c[1], decimal(c[2]), decimal(c[3]), c[5] } end
end
return { last, out }
