-- The taking of tasks from a lane, in a claim.
-- A block, since a function of Lua has at most 200 locals.
local take_from_lane
do
  local MAX_LEASE, DEFAULT_LEASE, DEFAULT_HOLD = 3600000, 30000, 1800000
  -- What leases of one source and of one duration have in common.
  local function terms_of(w, s)
    local of = s.terms
    if not of then
      of = {}
      s.terms = of
    end
    local t = of[w.lease]
    if t then return t end
    local hold = s.hold > 0 and s.hold or DEFAULT_HOLD
    local duration = min(w.lease > 0 and w.lease or (s.lease > 0 and s.lease or DEFAULT_LEASE), hold)
    t = { hold = hold, duration = duration, deadline = now + duration, deadline_text = decimal(now + duration) }
    of[w.lease] = t
    return t
  end

  -- The new record of a task under its lease token.
  local function grant_record(w, t, raw, revision, attempt, fence, token)
    local tail = token .. '\n' .. w.session
    if w.packed_terms ~= t or w.packed_tail ~= #tail then
      w.packed_terms, w.packed_tail = t, #tail
      w.packed_lease = pack_lease(w.holder, now, t.deadline, t.duration, t.hold, #tail)
    end
    return lease_record(raw, revision + 1, attempt + 1, fence, w.packed_lease, tail)
  end

  -- The bytes that a task counts for the limit of a want.
  local function task_bytes(id, size, s, detailed)
    local bytes = size + s.joined
    if detailed then
      bytes = bytes + call('HSTRLEN', details_key(id), 'c') + call('HSTRLEN', details_key(id), 'm')
    end
    return bytes
  end

  -- Sets the lock. When another still stands: false, and how long.
  local function set_lock(id, token, deadline)
    local key = lock_key(id)
    if call('SET', key, token, 'NX', 'PXAT', deadline) then return true end
    local ttl = call('PTTL', key)
    if ttl == 0 then
      call('SET', key, token, 'PXAT', deadline)
      return true
    end
    if ttl < 0 then ttl = MAX_LEASE end -- a lock set by hand, without an end
    return false, ttl
  end

  -- Takes one task: 'granted', 'missing', 'orphan' or 'full'.
  local function take(claim, w, l, s, taken, b, i)
    local id, raw = b.ids[i], b.records[i]
    local state, flags, lane, revision, size, attempt = read_ungranted(raw)
    if state ~= WAITING or lane ~= l.n then return 'missing' end
    local detailed = flags % 8 >= DETAILS
    local bytes = task_bytes(id, size, s, detailed)
    if w.max_bytes > 0 and #w.ids > 0 and w.bytes + bytes > w.max_bytes then return 'full' end
    local t, fence = taken.terms, max(claim.fence + 1, now_us)
    local token = w.holder_name .. decimal(fence)
    local locked, ttl = set_lock(id, token, t.deadline_text)
    local leases = claim.leases
    local n = #leases
    leases[n + 1], leases[n + 2] = locked and t.deadline_text or decimal(now + ttl), lease_member(l, id)
    if not locked then return 'orphan' end
    local record = grant_record(w, t, raw, revision, attempt, fence, token)
    local held, tasks = taken.held, taken.tasks
    n = #held
    held[n + 1], held[n + 2] = id, w.session
    n = #writes
    writes[n + 1], writes[n + 2] = b.keys[i], record
    n = #tasks
    tasks[n + 1], tasks[n + 2], tasks[n + 3], tasks[n + 4] = id, record, detailed and holder_details(id), false
    n = #w.ids
    if n == 0 then w.fence = fence end
    w.ids[n + 1] = id
    w.bytes, claim.fence = w.bytes + bytes, fence
    return 'granted'
  end

  -- Counts what a turn took of the lane.
  local function note_taken(claim, w, q, l, taken)
    if taken.all == 0 then return end
    if taken.granted > 0 then
      w.tasks[#w.tasks + 1] = taken.tasks
      w.deadline = max(w.deadline, taken.terms.deadline)
    end
    local missing = taken.all - taken.granted - taken.orphaned
    count(l.uid, 'ready', -taken.granted - missing)
    count(l.uid, 'leased', taken.granted)
    q.waiting, q.in_flight = q.waiting - taken.granted - missing, q.in_flight + taken.granted
    q.dirty, l.removed = true, true
    claim.granted, claim.misses = claim.granted + taken.granted, claim.misses + taken.all - taken.granted
    claim.dropped, claim.orphaned = claim.dropped + missing, claim.orphaned + taken.orphaned
  end

  -- Takes up to share tasks from the lane while its priority stays what it is.
  function take_from_lane(claim, w, q, l, s, share, ahead)
    local b = look_ahead(l, s, share, ahead)
    l.taking = l.taking or b.priority
    if b.n == 0 or b.priority ~= l.taking then return 0, 0 end
    local held = claim.held[w.collector]
    if not held then
      held = {}
      claim.held[w.collector] = held
    end
    local taken = { granted = 0, all = 0, orphaned = 0, held = held, tasks = begin_tasks(l), terms = terms_of(w, s) }
    local away = b.away
    while taken.all < share and b.taken < b.n do
      local i = b.taken + 1
      if not b.records[i] then read_ahead(l, b, i) end
      local how = take(claim, w, l, s, taken, b, i)
      if how == 'full' then
        w.ended = true
        break
      end
      b.taken, taken.all = i, taken.all + 1
      if how ~= 'missing' then
        away[#away + 1] = how == 'granted' and LEASED_TEXT or ORPHAN_TEXT
        away[#away + 1] = b.names[i]
      end
      if how == 'granted' then taken.granted = taken.granted + 1
      elseif how == 'orphan' then taken.orphaned = taken.orphaned + 1 end
    end
    if b.taken == b.n then l.head = b.next end
    note_taken(claim, w, q, l, taken)
    return taken.granted, taken.all
  end
end
