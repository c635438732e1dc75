-- Keeps a source at its home shard, if there is none of that id. A full store
-- takes no new sources, but changes of those it has (source.lua).
--
-- KEYS[1]  the shard key
-- ARGV     id, what is to be kept, whether a version is pending (0, 1)
-- Returns  1, or 0 when the id is taken
-- Cost     O(log n)
--
-- flags: none
local id, pending = ARGV[1], P .. 'pending'
if not call('SET', P .. 'source:' .. id, ARGV[2], 'NX') then return 0 end
call('ZADD', P .. 'sources', 0, id)
if ARGV[3] == '1' then call('ZADD', pending, 0, id) else call('ZREM', pending, id) end
return 1
