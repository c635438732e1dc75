-- Campaigns for a duty, resigns from it, or returns its leader. Keepers renew every
-- second, so it uses few commands.
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     duty, holder, ttl in ms (0 = resign)
-- Returns  the leader afterwards ('' = nobody)
-- Cost     O(1)
local key = P .. 'duty:' .. ARGV[1]
local holder, ttl = ARGV[2], tonumber(ARGV[3])
local leader = call('GET', key)
if leader and leader ~= holder then
  -- With longer left than it has just after a renewal, the clock was stepped back.
  if ttl > 0 and call('PTTL', key) >= ttl then call('PEXPIRE', key, max(ttl - 1, 1)) end
  return leader
end
if ttl == 0 then
  if leader then call('DEL', key) end
  return ''
end
-- A key is gone from the first millisecond after its end; a duty at its end.
if leader then
  call('PEXPIRE', key, max(ttl - 1, 1))
else
  call('SET', key, holder, 'PX', max(ttl - 1, 1))
end
return holder
