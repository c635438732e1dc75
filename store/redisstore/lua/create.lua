-- Keeps a source at its home shard, if there is none of that id. A full store
-- takes no new sources, but changes of those it has (source.lua).
--
-- KEYS[1]  the shard key
-- ARGV     id, what is to be kept, whether a version is pending, and whether it has holds (0, 1)
-- Returns  1, or 0 when the id is taken
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
