-- Sources and lanes: read once a script, and where a lane belongs among the
-- lanes of its queue ("place lane" in dispatch/scheduling.md).
local lanes
local get_queue, part -- in queue.lua

-- Lane later holds, behind the tasks that are due later, the leased ones and the
-- orphans: whatever is not ready has one place in its lane.
local LEASED_FROM, ORPHAN_FROM = 1125899906842624, 2251799813685248 -- 2^50, 2^51
local LEASED_TEXT, ORPHAN_TEXT = '1125899906842624', '2251799813685248'

-- What the shard holds of a source. One that it does not know (any more) is
-- deleted.
local function get_source(uid)
  local s = sources[uid]
  if s then return s end
  local packed = call('HGET', source_key(uid), 'gate')
  if packed then
    local g = cmsgpack.unpack(packed)
    s = {
      uid = uid, known = true, id = g[1], version = g[2], pool = g[3], priority = g[4], paused = until_(g[5]),
      deleted = g[6] == 1, limit = g[7], lease = g[8], hold = g[9], joined = g[10],
      remember = g[11],
    }
  else
    s = { uid = uid, known = false, id = '', version = 0, pool = '', priority = 5, paused = 0, deleted = true,
      limit = 0, lease = 0, hold = 0, joined = 0, remember = 0 }
  end
  sources[uid] = s
  return s
end

-- Of a lane, open and wait are its scores in the sets of its queue: false = not
-- in the set, nil = not known yet. head is the score of the first ready task in
-- the same way. name is the number as Redis has it in keys and sets.
local function get_lane(n)
  n = tonumber(n)
  local l = lanes[n]
  if l then return l end
  local f = call('HMGET', lane_key(n), 'uid', 'queue', 'slot', 'pool', 'settled')
  l = {
    n = n, name = decimal(n), uid = f[1] or '', queue = f[2] or '', slot = f[3] or '', pool = f[4] or '', settled = f[5] == '1',
    open = nil, wait = nil, head = nil, removed = nil,
  }
  lanes[n] = l
  return l
end

-- Lane sets hold the part of a task id after the slot, which all tasks of a
-- lane share.
local function suffix_of(id) return string.sub(id, -26) end
local function id_of(l, suffix) return l.slot .. '-' .. suffix end

-- The lease index names the lane too, so that a lease whose record is missing
-- can still be taken off its queue. The order is that of the ids.
local function lease_member(l, id) return id .. ':' .. l.name end

local function lane_priority(s, rank) return max(0, min(9, s.priority + 9 - floor(rank / 2) - 5)) end

local function since_of(old, waited, turn_end)
  if turn_end then return now end
  if old then return old % BAND end
  if waited and waited <= now then return waited end
  return now
end

local place_lane
do
  -- Moves tasks of lane later that are due to lane ready, at most 100.
  local function promote_tasks(l)
    local due = call('ZRANGEBYSCORE', later_key(l.name), '-inf', now * 32 + 31, 'LIMIT', 0, 100, 'WITHSCORES')
    local add, gone = {}, {}
    for i = 1, #due, 2 do
      local score = tonumber(due[i + 1])
      add[i] = (score % 32) * BAND + floor(score / 32)
      add[i + 1] = due[i]
      gone[#gone + 1] = due[i]
    end
    call('ZADD', ready_key(l.name), unpack(add))
    call('ZREM', later_key(l.name), unpack(gone))
    count(l.uid, 'scheduled', -#gone)
    count(l.uid, 'ready', #gone)
    l.head = nil
  end

  -- When the lane can be picked, and the priority of its head; nil when it is in
  -- no set. Tasks that are due become ready first.
  local function lane_time(l, s)
    local later = call('ZRANGE', later_key(l.name), 0, 0, 'WITHSCORES')
    local score = tonumber(later[2])
    if score and score <= now * 32 + 31 then
      promote_tasks(l)
      later = call('ZRANGE', later_key(l.name), 0, 0, 'WITHSCORES')
      score = tonumber(later[2])
    end
    if s.deleted then return nil end
    if l.head == nil then l.head = tonumber(call('ZRANGE', ready_key(l.name), 0, 0, 'WITHSCORES')[2]) or false end
    if l.head then return s.paused, lane_priority(s, floor(l.head / BAND)) end
    if not score or score >= LEASED_FROM then return nil end
    return max(s.paused, floor(score / 32)), lane_priority(s, score % 32)
  end

  -- Takes the lane out of the sets of its queue, where it may be.
  local function leave_queue(l)
    if l.pool == '' then return end
    local a = part(get_queue(l.queue), l.pool)
    if l.open ~= false then
      call('ZREM', a.open_key, l.name)
      move_head(a.open_key, l.name, l.open, false)
    end
    if not l.open and l.wait ~= false then
      call('ZREM', a.wait_key, l.name)
      a.first = nil
    end
    l.open, l.wait = false, false
  end

  -- Puts the lane among those that wait until `at`.
  local function lane_waits(l, a, at)
    if l.open ~= false then
      call('ZREM', a.open_key, l.name)
      move_head(a.open_key, l.name, l.open, false)
      l.open = false
    end
    if l.wait == at then return end
    call('ZADD', a.wait_key, at, l.name)
    l.wait, a.first = at, nil
  end

  -- Puts the lane among those that can be picked.
  local function lane_opens(l, a, priority, turn_end)
    if l.open == nil then l.open = tonumber(call('ZSCORE', a.open_key, l.name) or nil) or false end
    if l.open then l.wait = false end
    if l.wait == nil then l.wait = tonumber(call('ZSCORE', a.wait_key, l.name) or nil) or false end
    local score = (9 - priority) * BAND + since_of(l.open, l.wait, turn_end)
    if l.wait then
      call('ZREM', a.wait_key, l.name)
      l.wait, a.first = false, nil
    end
    if score == l.open then return end
    call('ZADD', a.open_key, decimal(score), l.name)
    move_head(a.open_key, l.name, l.open, score)
    l.open = score
  end

  function place_lane(l, turn_end)
    local s = get_source(l.uid)
    if l.pool ~= s.pool and l.pool ~= '' then
      leave_queue(l)
      l.pool = ''
    end
    local at, priority = lane_time(l, s)
    if not at then
      -- A lane that has lost no task here stands in no set already.
      if s.deleted or l.removed then leave_queue(l) end
      return
    end
    if l.pool == '' then
      l.pool, l.open, l.wait = s.pool, false, false
      call('HSET', lane_key(l.name), 'pool', l.pool)
    end
    local q = get_queue(l.queue)
    local a = part(q, l.pool)
    if not a.held then a.held, q.dirty = true, true end
    -- It has to be placed once more when it was already.
    a.placed = nil
    if at > now then lane_waits(l, a, at) else lane_opens(l, a, priority, turn_end) end
  end
end

-- at each call
lanes = {}
