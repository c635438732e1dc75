-- Where a lane belongs among the lanes of its queue ("place lane" in
-- dispatch/scheduling.md).

-- What placing has done in this call: the pool it has named last, and how much it has
-- promoted, of MOST tasks and lanes.
local placing = { MOST = 1000, promoted = 0, named = false }

local function since_of(old, waited, turn_end)
  if turn_end then return now end
  if old then return old % BAND end
  if waited and waited <= now then return waited end
  return now
end

local place_lane, open_score
do
  -- Moves tasks of lane later that are due to lane ready, at most 100, and one in
  -- any case.
  local function promote_tasks(l)
    local most = max(1, min(100, placing.MOST - placing.promoted))
    local key = tasks_key(l.name)
    local due = call('ZRANGEBYSCORE', key, LATER_FROM, LATER_FROM + now * 32 + 31, 'LIMIT', 0, most, 'WITHSCORES')
    local moved, n, lowest = {}, #due / 2, INF
    for i = 1, #due, 2 do
      local score = tonumber(due[i + 1]) - LATER_FROM
      lowest = min(lowest, score % 32)
      moved[i], moved[i + 1] = (score % 32) * BAND + floor(score / 32), due[i]
    end
    call_for_all('ZADD', key, moved)
    if n == 0 then l.removed = true end -- the set was lost
    placing.promoted = placing.promoted + n
    count(l.uid, 'scheduled', -n)
    count(l.uid, 'ready', n)
    front.came(l, 'rank', lowest)
    front.is(l, 'later', nil)
  end

  -- When the lane can be picked, and the priority of its head; nil when it is in
  -- no set. Tasks that are due become ready first.
  local function lane_time(l, s)
    if get_queue(l.queue).waiting <= 0 then return nil end -- nothing waits in any of its lanes
    local later = front.later(l)
    if later and later <= now * 32 + 31 then
      if l.ahead then write_taken(l) end
      promote_tasks(l)
      later = front.later(l)
    end
    if s.deleted then return nil end
    local rank = front.rank(l)
    if rank then return s.held, lane_priority(s, rank) end
    if not later then return nil end
    return max(s.held, floor(later / 32)), lane_priority(s, later % 32)
  end

  -- The score of a member of a set, or false.
  local function score_of(key, name)
    local h = all_heads and all_heads[key]
    for _, m in ipairs(h or {}) do
      if m.name == name then return m.score end
    end
    return not (h and h.whole) and tonumber(call('ZSCORE', key, name) or nil) or false
  end

  -- The score of a lane among those of its queue that can be picked, or false.
  function open_score(a, name)
    if a.opens == 0 then return false end
    if a.opens == 1 then return a.head_name == name and a.head end
    return score_of(queue_open_key(a), name)
  end

  -- Finds the set of its queue that the lane is in.
  local function find_lane(l, a)
    if l.open == nil then l.open = open_score(a, l.name) end
    if l.open or a.waits == 0 then
      l.wait = false
    elseif l.wait == nil and a.waits == 1 then
      l.wait = a.first_name == l.name and a.first
    elseif l.wait == nil then
      l.wait = tonumber(call('ZSCORE', queue_wait_key(a), l.name) or nil) or false
    end
  end

  -- Puts a lane into a set of its queue, or moves it there. A lane that is alone in
  -- its set is kept by the queue's record: the set itself begins with the second.
  local function enter_set(key_of, a, n, stands, name, score, alone, alone_score)
    if n > 1 then call('ZADD', key_of(a), score, name)
    elseif n == 1 and not stands then call('ZADD', key_of(a), score, name, alone_score, alone) end
  end

  -- Takes a lane out of a set of n, and answers the one that is then alone and its
  -- score; false where none is.
  local function leave_set(key_of, a, n, name)
    if n < 2 then return false, false end
    local key = key_of(a)
    call('ZREM', key, name)
    if n > 2 then return false, false end
    local last = call('ZPOPMIN', key)
    return last[1], tonumber(last[2])
  end

  local function leave_open(l, q, a)
    if not l.open then return end
    a.head_name, a.head = leave_set(queue_open_key, a, a.opens, l.name)
    if a.opens > 2 then move_head(queue_open_key(a), l.name, l.open, false) end
    a.opens, q.dirty = a.opens - 1, true
    l.open = false
  end

  local function leave_wait(l, q, a)
    if not l.wait then return end
    a.first_name, a.first = leave_set(queue_wait_key, a, a.waits, l.name)
    a.waits, q.dirty = a.waits - 1, true
    l.wait = false
  end

  -- Takes a lane out of a queue that is not its own, where its score is l.open: its record
  -- was lost, or is damaged. It would be met again and again.
  function placing.expel(l, q, a)
    leave_open(l, q, a)
    l.open, l.wait = nil, nil
  end

  -- Takes the lane out of the sets of its queue, where it may be.
  local function leave_queue(l)
    if l.pool == '' then return end
    local q = get_queue(l.queue)
    local a = part(q, l.pool)
    find_lane(l, a)
    leave_open(l, q, a)
    leave_wait(l, q, a)
  end

  -- Puts the lane among those that wait until `at`.
  local function lane_waits(l, q, a, at)
    leave_open(l, q, a)
    if l.wait == at then return end
    enter_set(queue_wait_key, a, a.waits, l.wait, l.name, at, a.first_name, a.first)
    if not l.wait then a.waits = a.waits + 1 end
    l.wait, q.dirty = at, true
    if a.waits == 1 then a.first_name, a.first = l.name, at else a.first = false end
  end

  -- Notes that a set has one member.
  local function know_head(key, name, score)
    all_heads = all_heads or {}
    all_heads[key] = { whole = true, counts = {}, { name = name, score = score } }
  end

  -- Notes where the lane stands now among those that can be picked.
  local function note_open(l, a, score)
    if not l.open then
      a.opens = a.opens + 1
      if a.opens == 2 then know_head(queue_open_key(a), a.head_name, a.head) end
    end
    if a.opens == 1 then a.head_name, a.head = l.name, score else move_head(queue_open_key(a), l.name, l.open, score) end
  end

  -- Puts the lane among those that can be picked.
  local function lane_opens(l, q, a, priority, turn_end)
    local score = (9 - priority) * BAND + since_of(l.open, l.wait, turn_end)
    leave_wait(l, q, a)
    if score == l.open then return end
    enter_set(queue_open_key, a, a.opens, l.open, l.name, decimal(score), a.head_name, a.head and decimal(a.head))
    note_open(l, a, score)
    l.open, q.dirty = score, true
  end

  function place_lane(l, turn_end)
    local s = get_source(l.uid)
    if l.pool ~= s.pool and l.pool ~= '' then
      leave_queue(l)
      l.pool = ''
    end
    local at, priority = lane_time(l, s)
    if not at then
      -- A lane of which no task was taken, or found lost, stands in no set already.
      if s.deleted or l.removed then leave_queue(l) end
      if s.named then named.place(s, l.name, false, false) end
      return
    end
    if l.pool == '' then
      l.pool, l.open, l.wait, l.dirty = s.pool, false, false, true
    end
    local q = get_queue(l.queue)
    local a = part(q, l.pool)
    if not a.held then a.held, q.dirty = true, true end
    -- It has to be placed once more when it was already.
    a.placed = nil
    find_lane(l, a)
    local before = l.open and 0 or l.wait or INF
    if at > now then lane_waits(l, q, a, at) else lane_opens(l, q, a, priority, turn_end) end
    if s.named then
      named.place(s, l.name, l.open, l.wait, before == 0)
      if at < before then named.tell(a, max(at, now)) end
    end
  end
end

-- at each call
placing.promoted, placing.named = 0, false
