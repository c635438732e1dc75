-- After the clock was stepped back no lease lasts longer than it was given for, and
-- no lock longer than a lease can. A part of the sweep (look.lua).
local clamp_deadlines
do
  local CLAMP_LIMIT = 100

  -- Cuts the deadline of a task's lease, and the end of its lock, if that has one; gives
  -- the deadline, or when an orphan is looked at again.
  local function clamp(id)
    local r, ttl = read_record(call('GET', task_key(id))), call('PTTL', lock_key(id))
    local leased, at = r and r.state == LEASED, now + (ttl == -1 and MAX_LEASE or min(max(ttl, 0), MAX_LEASE))
    if leased then
      at = min(at, now + r.duration)
      call('SETRANGE', task_key(id), AT.deadline - 1, struct.pack('>I6', at))
    end
    if ttl > 0 then call('PEXPIREAT', lock_key(id), decimal(at)) end
    return leased and at or now + orphans.next_look(at - now)
  end

  -- Cuts deadlines of a lane that lie too far ahead, at most limit, and says how many.
  local function clamp_lane(name, limit)
    local far, set, first = read_leases(name, decimal(LEASED_FROM + now + MAX_LEASE + 1), LEASED_TO, 0, limit), {}, INF
    for i = 1, #far, 2 do
      local at = clamp(id_of(get_lane(name), far[i]))
      set[i], set[i + 1], first = LEASED_FROM + at, far[i], min(first, at)
    end
    if #far == 0 then return 0 end
    call('ZADD', tasks_key(name), unpack(set))
    call('ZADD', LEASES, 'LT', first, name)
    return #far / 2
  end

  -- Goes through the lanes, some at each sweep, from where the last one came to.
  local function clamp_next(walk, limit)
    local step = call('ZSCAN', LEASES, walk, 'COUNT', CLAMP_LIMIT)
    for i = 1, #step[2], 2 do
      local id, name = split_member(step[2][i])
      if not id then limit = limit - clamp_lane(name, limit) end
      if limit <= 0 then return end
    end
    call('HSET', SHARD, 'walk', step[1])
  end

  -- Leases that lie too far ahead may be behind others of their lane, where only
  -- looking for them finds them.
  function clamp_deadlines(walk)
    local limit = CLAMP_LIMIT
    for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, now + MAX_LEASE + 1, '+inf', 'LIMIT', 0, CLAMP_LIMIT)) do
      local id, name = split_member(member)
      if id then
        call('ZADD', LEASES, clamp(id), member)
        limit = limit - 1
      else
        limit = limit - clamp_lane(name, limit)
      end
      if limit <= 0 then return end
    end
    if highest > now then clamp_next(walk, limit) end
  end
end
