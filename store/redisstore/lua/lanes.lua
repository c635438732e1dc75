-- The lanes of a queue: the one in its value, or, of a wide queue, each a value of its own,
-- with sets of those that can be picked and those that wait.

local function read_wide(q, n)
  local l = q.lanes[n]
  if l == nil then
    local packed = call('GET', key.lane(n .. ':' .. q.name))
    if packed then
      local pool_name, stands, score, later, more, from = parse(lane.FORMAT, packed)
      l = lane.lay(q, n, pool_name, stands, score, later, more, sub(packed, from))
      l.stored = true
    end
    q.lanes[n] = l or false
  end
  return l or nil
end

-- The lane of a source in the queue, nil for none.
function queue.lane(q, n)
  if q.wide then return read_wide(q, n) end
  return q.lane and q.lane.n == n and q.lane or nil
end

-- Gives a flat queue's lane a value and a place in a set of its own.
local function widen(q)
  local l = q.lane
  q.wide, q.lane, q.lanes, q.dirty, l.dirty = true, false, { [l.n] = l }, true, true
  if l.pool == '' then return end
  local a = queue.part(q, l.pool)
  if l.open then
    call('ZADD', key.queue_open(a), decimal(l.open), l.n)
    a.opens = 1
  elseif l.wait then
    call('ZADD', key.queue_wait(a), l.wait, l.n)
    a.waits = 1
  end
end

-- The lane of a source, made when it has the first tasks there.
function queue.make_lane(q, n)
  local l = queue.lane(q, n)
  if l then return l end
  if q.lane and not lane.is_empty(q.lane) then widen(q) end
  l = lane.new(q, n)
  if q.wide then
    q.lanes[n] = l
  else
    if q.lane then
      place.lane(q.lane, false)
      settled.unlist(q.lane.n, q.name)
    end
    q.lane = l
  end
  if not q.exists then lane.find_set(l) end
  settled.list(l)
  q.dirty, l.dirty = true, true
  return l
end

-- Marks a lane that was changed: it is placed at the end, and its queue.
function lane.touch(l)
  l.touched, l.q.touched = true, true
end

-- How many lanes of the queue can be picked in a pool, and how many wait.
function queue.opens(q, a)
  if q.wide then return a.opens end
  return q.lane and q.lane.open and q.lane.pool == a.pool and 1 or 0
end
function queue.waits(q, a)
  if q.wide then return a.waits end
  return q.lane and q.lane.wait and q.lane.pool == a.pool and 1 or 0
end

-- The first lane that can be picked: its score and its source; nil for none.
function queue.first_open(q, a)
  local l = q.lane
  if l then
    if l.open and l.pool == a.pool then return l.open, l.n end
    return nil
  end
  if a.opens == 0 then return nil end
  local m = call('ZRANGE', key.queue_open(a), '0', '0', 'WITHSCORES')
  if not m[1] then return nil end
  return tonumber(m[2]), tonumber(m[1])
end

-- When the first of the lanes that wait can be picked, nil for none.
function queue.first_wait(q, a)
  local l = q.lane
  if l then return l.wait and l.pool == a.pool and l.wait or nil end
  if a.waits == 0 then return nil end
  return tonumber(call('ZRANGE', key.queue_wait(a), '0', '0', 'WITHSCORES')[2] or nil)
end

-- Whether a lane waits for someone to lift a hold of its source.
function queue.has_held_lane(q, a)
  if not q.wide then return q.lane and q.lane.wait == INF and q.lane.pool == a.pool end
  return a.waits > 0 and call('ZCOUNT', key.queue_wait(a), '+inf', '+inf') > 0
end

-- Lanes that wait until now at most, the first of them.
function queue.due_lanes(q, a, most)
  if not q.wide then return q.lane and q.lane.wait and q.lane.wait <= now and q.lane.pool == a.pool and { q.lane } or {} end
  local due = a.waits > 0 and call('ZRANGEBYSCORE', key.queue_wait(a), '-inf', now, 'LIMIT', 0, most) or {}
  for i = 1, #due do due[i] = queue.lane(q, tonumber(due[i])) or lane.new(q, tonumber(due[i])) end
  return due
end

-- Notes where a lane stands: open is its score in queue open, wait when it can be picked,
-- false for neither.
function lane.stand(l, open, wait)
  if l.open == open and l.wait == wait then return end
  local q = l.q
  q.dirty, l.dirty = true, true
  if q.wide then
    local a = queue.part(q, l.pool)
    if l.open and not open then
      call('ZREM', key.queue_open(a), l.n)
      a.opens = a.opens - 1
    elseif l.wait and not wait then
      call('ZREM', key.queue_wait(a), l.n)
      a.waits = a.waits - 1
    end
    if open then
      call('ZADD', key.queue_open(a), decimal(open), l.n)
      if not l.open then a.opens = a.opens + 1 end
    elseif wait then
      call('ZADD', key.queue_wait(a), wait, l.n)
      if not l.wait then a.waits = a.waits + 1 end
    end
  end
  l.open, l.wait = open, wait
end

-- Lanes of the queue that stand in a pool, by their sources, at most so many; and how many
-- there are.
function queue.sources(q, most)
  if not q.wide then return q.lane and not lane.is_empty(q.lane) and { q.lane.n } or {} end
  local all, a = {}, q.part
  while a do
    for _, name in ipairs({ key.queue_open(a), key.queue_wait(a) }) do
      for _, n in ipairs(call('ZRANGE', name, 0, most - 1)) do
        if #all < most then all[#all + 1] = tonumber(n) end
      end
    end
    a = a.next
  end
  return all
end
function queue.lanes(q)
  if not q.wide then return q.lane and not lane.is_empty(q.lane) and 1 or 0 end
  local n, a = 0, q.part
  while a do n, a = n + a.opens + a.waits, a.next end
  return n
end
