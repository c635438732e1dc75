-- Stores a source in its home shard, if the id is free. A full store takes no new
-- sources, only changes of existing ones (source.lua).
--
-- KEYS[1]  the shard key
-- ARGV     id, the source, whether a version is pending, and whether it has holds (0, 1)
-- Returns  1, or 0 if the id is taken
-- Cost     O(log n)
--
-- flags: none
-- uses: listed
local id = ARGV[1]
if not call('SET', P .. 'source:' .. id, ARGV[2], 'NX') then return 0 end
call('ZADD', P .. 'sources', 0, id)
list('pending', id, ARGV[3])
list('heldsources', id, ARGV[4])
return 1
