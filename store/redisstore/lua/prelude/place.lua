-- Where a queue belongs among those of each of its pools ("place queue" in
-- dispatch/scheduling.md).

-- The first of the lanes that can be picked: its score and its number, or false.
local function first_open(a)
  if a.opens == 0 then return false end
  if a.opens == 1 then return a.head, a.head_name end
  local head = read_heads(queue_open_key(a), 2)[1]
  if not head then return false end
  return head.score, head.name
end

local place_queue, place_queue_everywhere
do
  -- When the first of the lanes that wait can be picked, or false.
  function placing.first_waiting(a)
    if a.waits == 0 then return false end
    if not a.first then
      local m = call('ZRANGE', queue_wait_key(a), '0', '0', 'WITHSCORES')
      a.first_name, a.first = m[1], tonumber(m[2] or nil)
    end
    return a.first
  end

  local function leave_open(q, a)
    if not a.open then return end
    local key = pool_open_key(a.pool)
    call('ZREM', key, q.name)
    move_head(key, q.name, a.open, false)
    a.open, q.dirty = false, true
  end

  -- A pool is named when a queue comes to it.
  local function name_pool(pool)
    if placing.named == pool then return end
    call('SADD', POOLS, pool)
    placing.named = pool
  end

  -- Puts the queue among those of the pool that wait until `at`.
  local function queue_waits(q, a, at)
    local was_open, before = a.open, a.wait
    leave_open(q, a)
    if before == at then return end
    local key = pool_wait_key(a.pool)
    call('ZADD', key, at, q.name)
    a.wait, q.dirty = at, true
    if was_open then return end
    if not before then name_pool(a.pool) end
    if at >= (before or INF) then return end
    -- A queue that is not the first to come changes nothing for who waits, but for
    -- those whose lanes were put aside.
    if a.aside then
      named.bring_back(q, a)
      named.tell(a, at)
    elseif call('ZRANK', key, q.name) == 0 then
      tell_of(a.pool, at)
    end
  end

  -- Puts the queue among those of the pool that can be granted from.
  local function queue_opens(q, a, head, turn_end)
    local score = floor(head / BAND) * BAND + since_of(a.open, a.wait, turn_end)
    if a.wait then call('ZREM', pool_wait_key(a.pool), q.name)
    elseif not a.open then name_pool(a.pool) end
    if not a.open then
      tell_of(a.pool, now)
      if a.aside then named.bring_back(q, a) end
    end
    if score ~= a.open then
      local key = pool_open_key(a.pool)
      call('ZADD', key, decimal(score), q.name)
      move_head(key, q.name, a.open, score)
      q.dirty = true
    end
    a.open, a.wait = score, false
  end

  local function place_in(q, a, turn_end)
    a.placed = true
    if (placing.first_waiting(a) or INF) <= now then
      local due = a.waits == 1 and { a.first_name } or call('ZRANGEBYSCORE', queue_wait_key(a), '-inf', now, 'LIMIT', 0, 100)
      for _, n in ipairs(due) do
        if placing.promoted >= placing.MOST then break end
        placing.promoted = placing.promoted + 1
        place_lane(get_lane(n), false)
      end
      a.placed = true
    end
    local head, first = first_open(a), placing.first_waiting(a)
    if not head and not first then
      leave_open(q, a)
      if a.wait then call('ZREM', pool_wait_key(a.pool), q.name) end
      if a.aside then named.bring_back(q, a) end
      if a.wait or a.held then a.wait, a.held, q.dirty = false, false, true end
      return
    end
    local at = max(queue_gate(q), head and 0 or first)
    if at <= now and head then queue_opens(q, a, head, turn_end) else queue_waits(q, a, at) end
  end

  -- Places the queue in one pool, and in those to which that moved lanes whose source
  -- was moved; it is in pool open then if a.open says so.
  function place_queue(q, a)
    place_in(q, a, false)
    if q.part == a and not a.next then return end
    local p = q.part
    while p do
      if p.held and p.placed == nil then place_in(q, p, false) end
      p = p.next
    end
  end

  local function unplace(a)
    while a do
      a.placed = nil
      a = a.next
    end
  end

  -- Those of the parts that are to be placed, by their pools.
  local function unplaced(a)
    local todo = {}
    while a do
      if a.held and not a.placed then todo[#todo + 1] = a end
      a = a.next
    end
    table.sort(todo, function(b, c) return before(b.pool, c.pool) end)
    return todo
  end

  -- Places the queue in all its pools. turn is the pool in which it had a turn
  -- just now, nil for none. Placing can move lanes to another pool, whose source
  -- was moved: then that one is placed (again).
  function place_queue_everywhere(q, turn)
    local only = q.part
    if not only then return end
    if not only.next then
      -- One pool, as nearly always; placing it can make it two.
      if not only.held then return end
      only.placed = nil
      place_in(q, only, only.pool == turn)
      if only.placed and not only.next then return end
      turn = nil
    else
      unplace(only)
    end
    for _ = 1, 3 do
      local todo = unplaced(only)
      if #todo == 0 then return end
      for _, a in ipairs(todo) do place_in(q, a, a.pool == turn) end
      turn = nil
    end
  end
end
