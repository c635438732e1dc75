-- Campaigns for a duty, resigns from it, or returns its leader. Keepers renew every
-- second, so it uses few commands.
--
-- ARGV     duty, holder, ttl in ms (0 = resign)
-- Returns  the leader afterwards ('' = nobody)
-- Cost     O(1)
function scripts.duty()
  local name = P .. 'duty:' .. ARGV[1]
  local holder, ttl = ARGV[2], tonumber(ARGV[3])
  local leader = call('GET', name)
  if leader and leader ~= holder then
    -- With longer left than it has just after a renewal, the clock was stepped back.
    if ttl > 0 and call('PTTL', name) >= ttl then call('PEXPIRE', name, max(ttl - 1, 1)) end
    return leader
  end
  if ttl == 0 then
    if leader then call('DEL', name) end
    return ''
  end
  -- A key is gone from the first millisecond after its end; a duty at its end.
  if leader then
    call('PEXPIRE', name, max(ttl - 1, 1))
  else
    call('SET', name, holder, 'PX', max(ttl - 1, 1))
  end
  return holder
end

-- Checks that the shard takes writes.
--
-- ARGV     none
-- Returns  the time in ms
-- Cost     O(1)
function scripts.ping() return now end
