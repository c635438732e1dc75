-- A queue's turn in a claim, and the taking of tasks.
local MAX_LEASE, DEFAULT_LEASE, DEFAULT_HOLD = 3600000, 30000, 1800000

-- An index entry whose record is missing, or not waiting in this lane.
local function drop_entry(claim, l)
  claim.misses = claim.misses + 1
  claim.dropped = claim.dropped + 1
  local q = get_queue(l.queue)
  q.waiting, q.dirty = q.waiting - 1, true
  count(l.uid, 'ready', -1)
end

-- The bytes that a task counts for the limit of a want.
local function task_bytes(id, r, s)
  local bytes = r.size + s.joined
  if r.details then
    bytes = bytes + call('HSTRLEN', details_key(id), 'c') + call('HSTRLEN', details_key(id), 'm')
  end
  return bytes
end

-- Sets the lock; when another still stands the task becomes an orphan.
local function set_lock(claim, l, id, token, deadline)
  local key = lock_key(id)
  if call('SET', key, token, 'NX', 'PXAT', decimal(deadline)) then return true end
  local ttl = call('PTTL', key)
  if ttl == 0 then
    call('SET', key, token, 'PXAT', decimal(deadline))
    return true
  end
  if ttl < 0 then ttl = MAX_LEASE end -- a lock set by hand, without an end
  claim.orphaned, claim.misses = claim.orphaned + 1, claim.misses + 1
  claim.leases[#claim.leases + 1] = now + ttl
  claim.leases[#claim.leases + 1] = lease_member(l, id)
  return false
end

-- Takes one task: 'granted', 'dropped' (also as an orphan) or 'full'.
local function take(claim, w, l, s, suffix)
  local id = id_of(l, suffix)
  local r = read_record(call('GET', task_key(id)))
  if not r or r.state ~= WAITING or r.lane ~= l.n then
    drop_entry(claim, l)
    return 'dropped'
  end
  local bytes = task_bytes(id, r, s)
  if w.max_bytes > 0 and #w.tasks > 0 and w.bytes + bytes > w.max_bytes then return 'full' end
  local hold = s.hold > 0 and s.hold or DEFAULT_HOLD
  local duration = min(w.lease > 0 and w.lease or (s.lease > 0 and s.lease or DEFAULT_LEASE), hold)
  local deadline, fence = now + duration, max(claim.fence + 1, now_us)
  local token = w.collector .. '/' .. w.token .. '/' .. decimal(fence)
  if not set_lock(claim, l, id, token, deadline) then return 'dropped' end
  claim.fence = fence
  r.state, r.attempt, r.revision = LEASED, r.attempt + 1, r.revision + 1
  r.digest, r.granted, r.deadline, r.duration, r.hold = digest_of(fence, w.holder), now, deadline, duration, hold
  r.tail = token .. '\n' .. w.session
  local raw = write_record(id, r)
  claim.leases[#claim.leases + 1] = deadline
  claim.leases[#claim.leases + 1] = lease_member(l, id)
  claim.held[w.collector] = claim.held[w.collector] or {}
  local held = claim.held[w.collector]
  held[#held + 1] = id
  held[#held + 1] = w.session
  w.bytes, w.deadline = w.bytes + bytes, max(w.deadline, deadline)
  w.tasks[#w.tasks + 1] = task_reply(id, raw, r, HANDED_OUT)
  w.ids[#w.ids + 1], w.fences[#w.fences + 1] = id, decimal(fence)
  return 'granted'
end

-- Takes up to share tasks from the lane while its priority is that of the pick.
local function take_from_lane(claim, w, q, l, s, band, share)
  local got, taken, leased = 0, {}, {}
  for i, value in ipairs(call('ZRANGE', ready_key(l.n), 0, share - 1, 'WITHSCORES')) do
    if i % 2 == 1 then
      taken.next = value
    else
      if 9 - lane_priority(s, floor(value / BAND)) ~= band then break end
      local how = take(claim, w, l, s, taken.next)
      if how == 'full' then
        w.ended = true
        break
      end
      taken[#taken + 1] = taken.next
      if how == 'granted' then
        got = got + 1
        leased[#leased + 1] = 0
        leased[#leased + 1] = taken.next
      end
    end
  end
  if #taken > 0 then call('ZREM', ready_key(l.n), unpack(taken)) end
  if got > 0 then
    call('ZADD', leased_key(l.n), unpack(leased))
    count(l.uid, 'ready', -got)
    count(l.uid, 'leased', got)
    q.waiting, q.in_flight, q.dirty = q.waiting - got, q.in_flight + got, true
    claim.granted = claim.granted + got
  end
  return got, #taken
end

-- Whether the lane's tasks can be granted in this pool now. A lane that its
-- source has left, since it was placed, is placed anew.
local function lane_belongs(claim, l, s)
  if not s.deleted and s.pool == claim.pool and s.paused <= now then return true end
  place_lane(l, false)
  claim.looks = claim.looks + 1
  return false
end

-- The first open lane of the sources that the want names; no pick is counted.
local function first_of_sources(w, q, open)
  local best, best_score
  for _, uid in ipairs(w.sources) do
    local n = call('ZSCORE', lanes_key(uid), q.name)
    local score = n and tonumber(call('ZSCORE', open, n) or nil)
    if score and (not best or score < best_score or (score == best_score and n < best)) then best, best_score = n, score end
  end
  return best, best_score
end

-- Picks a lane and takes from it: how many were granted, and whether the turn
-- goes on.
local function pick_lane(claim, w, q, quota)
  local open = queue_open_key(claim.pool, q.name)
  local n, score
  if #w.sources > 0 then
    n, score = first_of_sources(w, q, open)
  else
    n, score = pick(open, function() return call('HINCRBY', queue_key(q.name), 'picks:' .. claim.pool, 1) end)
  end
  if not score then return 0, false end
  local l = get_lane(n)
  local s = get_source(l.uid)
  if not lane_belongs(claim, l, s) then return 0, claim.looks < 300 end
  local share = max(1, floor(quota / in_band(open, score)))
  local band, got = floor(score / BAND), 0
  while got < share and not w.ended and claim.misses < 100 do
    local more, seen = take_from_lane(claim, w, q, l, s, band, share - got)
    got = got + more
    if seen == 0 then break end
  end
  place_lane(l, true)
  if claim.misses >= 100 then claim.looks = 300 end
  return got, claim.looks < 300
end

-- Gives the queue a turn and returns how many tasks it gave.
local function take_turn(claim, w, q)
  claim.looks = claim.looks + 1
  local score = place_queue(q, claim.pool, false)
  if not score then return 0 end
  local s, room, quota = settings_of(q), w.max - #w.tasks, 1
  if s.delay <= 0 then
    local share = max(1, floor(room / in_band(claim.open, score)))
    quota = min(share, room, s.in_flight - q.in_flight, 100 - claim.granted)
  end
  local total, goes_on = 0, true
  while quota > 0 and goes_on and not w.ended do
    local got
    got, goes_on = pick_lane(claim, w, q, quota)
    quota, total = quota - got, total + got
  end
  if total > 0 then
    local before = q.next_grant
    -- Counted from the end of this millisecond, so that no two grants are less than the delay apart.
    raise_next_grant(q, (s.delay > 0 and math.ceil(now_us / 1000) or now) + s.delay)
    for _, v in ipairs({ q.name, decimal(before), decimal(q.next_grant) }) do w.queues[#w.queues + 1] = v end
  end
  place_queue_everywhere(q, claim.pool)
  return total
end
