-- Replaces or removes a source in its home shard, if it has not changed since it was
-- read.
--
-- KEYS[1]  the shard key
-- ARGV     id, the stored source as it was read, the new one ('-' = remove, else '=...'),
--          whether a version is pending, and whether it has holds (0, 1)
-- Returns  1, or 0 if another source is stored
-- Cost     O(log n)
--
-- uses: listed
local id, old, new = ARGV[1], ARGV[2], string.match(ARGV[3], '^=(.*)')
local key = P .. 'source:' .. id
if call('GET', key) ~= old then return 0 end
if new then
  call('SET', key, new)
  call('ZADD', P .. 'sources', 0, id)
else
  call('DEL', key)
  call('ZREM', P .. 'sources', id)
end
list('pending', id, ARGV[4])
list('heldsources', id, ARGV[5])
return 1
