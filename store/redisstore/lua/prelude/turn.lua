-- A queue's turn in a claim, and the taking of tasks.
local MAX_LEASE, DEFAULT_LEASE, DEFAULT_HOLD = 3600000, 30000, 1800000

-- The bytes that a task counts for the limit of a want.
local function task_bytes(id, r, s)
  local bytes = r.size + s.joined
  if r.details then
    bytes = bytes + call('HSTRLEN', details_key(id), 'c') + call('HSTRLEN', details_key(id), 'm')
  end
  return bytes
end

-- Sets the lock. When another still stands: false, and how long.
local function set_lock(id, token, deadline)
  local key = lock_key(id)
  if call('SET', key, token, 'NX', 'PXAT', decimal(deadline)) then return true end
  local ttl = call('PTTL', key)
  if ttl == 0 then
    call('SET', key, token, 'PXAT', decimal(deadline))
    return true
  end
  if ttl < 0 then ttl = MAX_LEASE end -- a lock set by hand, without an end
  return false, ttl
end

-- Takes one task: 'granted', 'missing', 'orphan' or 'full'.
local function take(claim, w, l, s, suffix)
  local id = id_of(l, suffix)
  local r = read_record(call('GET', task_key(id)))
  if not r or r.state ~= WAITING or r.lane ~= l.n then return 'missing' end
  local bytes = task_bytes(id, r, s)
  if w.max_bytes > 0 and #w.tasks > 0 and w.bytes + bytes > w.max_bytes then return 'full' end
  local hold = s.hold > 0 and s.hold or DEFAULT_HOLD
  local duration = min(w.lease > 0 and w.lease or (s.lease > 0 and s.lease or DEFAULT_LEASE), hold)
  local deadline, fence = now + duration, max(claim.fence + 1, now_us)
  local token = w.collector .. '/' .. w.token .. '/' .. decimal(fence)
  local locked, ttl = set_lock(id, token, deadline)
  claim.leases[#claim.leases + 1] = locked and deadline or now + ttl
  claim.leases[#claim.leases + 1] = lease_member(l, id)
  if not locked then return 'orphan' end
  claim.fence = fence
  r.state, r.attempt, r.revision = LEASED, r.attempt + 1, r.revision + 1
  r.digest, r.granted, r.deadline, r.duration, r.hold = digest_of(fence, w.holder), now, deadline, duration, hold
  r.tail = token .. '\n' .. w.session
  local raw = write_record(id, r)
  claim.held[w.collector] = claim.held[w.collector] or {}
  local held = claim.held[w.collector]
  held[#held + 1] = id
  held[#held + 1] = w.session
  w.bytes, w.deadline = w.bytes + bytes, max(w.deadline, deadline)
  w.tasks[#w.tasks + 1] = task_reply(id, raw, r, HANDED_OUT)
  w.ids[#w.ids + 1], w.fences[#w.fences + 1] = id, decimal(fence)
  return 'granted'
end

-- Moves what was taken out of lane ready, and counts it.
local function note_taken(claim, q, l, taken)
  if #taken.all == 0 then return end
  call('ZREM', ready_key(l.n), unpack(taken.all))
  if #taken.away > 0 then call('ZADD', later_key(l.n), unpack(taken.away)) end
  local missing = #taken.all - #taken.away / 2
  count(l.uid, 'ready', -taken.granted - missing)
  count(l.uid, 'leased', taken.granted)
  q.waiting, q.in_flight = q.waiting - taken.granted - missing, q.in_flight + taken.granted
  q.dirty, l.removed = true, true
  claim.granted, claim.misses = claim.granted + taken.granted, claim.misses + #taken.all - taken.granted
  claim.dropped, claim.orphaned = claim.dropped + missing, claim.orphaned + #taken.away / 2 - taken.granted
end

-- Takes up to share tasks from the lane while its priority stays what it is. It
-- knows the head of what is left.
local function take_from_lane(claim, w, q, l, s, share)
  local taken = { granted = 0, all = {}, away = {} }
  local heads = call('ZRANGE', ready_key(l.n), 0, share, 'WITHSCORES')
  l.head = nil
  for i = 1, #heads, 2 do
    l.head = tonumber(heads[i + 1])
    local priority = lane_priority(s, floor(l.head / BAND))
    if not l.taking then l.taking = priority end
    if i > 2 * share or priority ~= l.taking then break end
    local suffix = heads[i]
    local how = take(claim, w, l, s, suffix)
    if how == 'full' then
      w.ended = true
      break
    end
    taken.all[#taken.all + 1] = suffix
    if how ~= 'missing' then
      taken.away[#taken.away + 1] = how == 'granted' and LEASED_FROM or ORPHAN_FROM
      taken.away[#taken.away + 1] = suffix
    end
    if how == 'granted' then taken.granted = taken.granted + 1 end
    l.head = nil
  end
  if l.head == nil and #heads < 2 * share + 2 then l.head = false end
  note_taken(claim, q, l, taken)
  return taken.granted, #taken.all
end

-- The first open lane of the sources that the want names; no pick is counted.
local function first_of_sources(w, q, a)
  local best, best_score
  for _, uid in ipairs(w.sources) do
    local n = call('ZSCORE', lanes_key(uid), q.name)
    local score = n and tonumber(call('ZSCORE', a.open_key, n) or nil)
    if score and (not best or score < best_score or (score == best_score and n < best)) then best, best_score = n, score end
  end
  return best, best_score
end

-- Picks a lane and takes from it: how many were granted, and whether the turn
-- goes on.
local function pick_lane(claim, w, q, a, quota)
  local n, score
  if #w.sources > 0 then n, score = first_of_sources(w, q, a) else n, score = pick_open_lane(q, a) end
  if not score then return 0, false end
  local l = get_lane(n)
  local s = get_source(l.uid)
  l.open, l.wait = score, false
  if s.deleted or s.pool ~= claim.pool or s.paused > now then
    -- Its source was paused, moved or deleted, and the lane is not placed yet.
    place_lane(l, false)
    claim.looks = claim.looks + 1
    return 0, claim.looks < 300
  end
  local share = quota > 1 and max(1, floor(quota / in_band(a.open_key, score))) or 1
  local got = 0
  l.taking = nil
  while got < share and not w.ended and claim.misses < 100 do
    local more, seen = take_from_lane(claim, w, q, l, s, share - got)
    got = got + more
    if seen == 0 then break end
  end
  place_lane(l, true)
  return got, claim.misses < 100
end

-- Gives the queue a turn and returns how many tasks it gave.
local function take_turn(claim, w, q)
  claim.looks = claim.looks + 1
  local a = part(q, claim.pool)
  place_queue(q, a, false)
  if not a.open then return 0 end
  local s, room, quota = settings_of(q), w.max - #w.tasks, 1
  if s.delay <= 0 then
    local share = room > 1 and max(1, floor(room / in_band(claim.open, a.open))) or 1
    quota = min(share, room, s.in_flight - q.in_flight, 100 - claim.granted)
  end
  local begin, goes_on = #w.ids, true
  while quota > 0 and goes_on and not w.ended do
    local got
    got, goes_on = pick_lane(claim, w, q, a, quota)
    quota = quota - got
  end
  local total = #w.ids - begin
  if total > 0 then
    local before = q.next_grant
    raise_next_grant(q, s.delay > 0 and now_end + s.delay or now)
    for _, v in ipairs({ q.name, decimal(before), decimal(q.next_grant), begin + 1, total }) do w.queues[#w.queues + 1] = v end
  end
  place_queue_everywhere(q, claim.pool)
  return total
end
