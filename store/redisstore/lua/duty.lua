-- Campaigns for a duty, or resigns from it.
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     duty, holder, ttl in ms (0 = resign)
-- Returns  1 when the holder leads (or led), else 0
-- Cost     O(1)
--
-- uses: base drain
local key, holder, ttl = P .. 'duty:' .. ARGV[1], ARGV[2], tonumber(ARGV[3])
local leader = call('GET', key)
if leader and call('PTTL', key) == 0 then leader = false end
if leader and leader ~= holder then return 0 end
if ttl > 0 then
  call('SET', key, holder, 'PX', ttl)
  return 1
end
call('DEL', key)
return leader and 1 or 0
