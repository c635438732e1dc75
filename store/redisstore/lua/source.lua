-- Replaces or removes a source at its home shard, if it still is what it was when
-- it was read.
--
-- KEYS[1]  the shard key
-- ARGV     id, what is kept, and what is to be kept: '-' for nothing, else '=...';
--          whether a version is pending (0, 1)
-- Returns  1, or 0 when something else is kept
-- Cost     O(log n)
local id, old, new = ARGV[1], ARGV[2], string.match(ARGV[3], '^=(.*)')
local key, pending = P .. 'source:' .. id, P .. 'pending'
if call('GET', key) ~= old then return 0 end
if new then
  call('SET', key, new)
  call('ZADD', P .. 'sources', 0, id)
else
  call('DEL', key)
  call('ZREM', P .. 'sources', id)
end
if ARGV[4] == '1' then call('ZADD', pending, 0, id) else call('ZREM', pending, id) end
return 1
