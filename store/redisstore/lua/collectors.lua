-- Lists collectors of this home shard by id.
--
-- KEYS[1]  the shard key
-- ARGV     the id to begin after ('' = the first), limit
-- Returns  now, the last id looked at ('' = the end), and per collector: id,
--          session, first, seen, info
-- Cost     O(log n + limit)
--
-- flags: no-writes
-- uses: base collector
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local ids, out = call('ZRANGEBYLEX', COLLECTORS, from, '+', 'LIMIT', 0, ARGV[2]), {}
for _, id in ipairs(ids) do
  local f = call('HMGET', collector_key(id), 'session', 'first', 'seen', 'info')
  if f[3] and tonumber(f[3]) + DAY > now then out[#out + 1] = { id, f[1], f[2], f[3], f[4] } end
end
return { now, #ids == tonumber(ARGV[2]) and ids[#ids] or '', out }
