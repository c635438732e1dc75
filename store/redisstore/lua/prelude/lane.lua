-- Sources and lanes: read once a script, and where a lane belongs among the
-- lanes of its queue ("place lane" in dispatch/scheduling.md).
local lanes = {}
local get_queue -- in queue.lua
local hold_pool -- in queue.lua

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
    }
  else
    s = { uid = uid, known = false, id = '', version = 0, pool = '', priority = 5, paused = 0, deleted = true,
      limit = 0, lease = 0, hold = 0, joined = 0 }
  end
  sources[uid] = s
  return s
end

local function get_lane(n)
  n = tonumber(n)
  local l = lanes[n]
  if l then return l end
  local f = call('HMGET', lane_key(n), 'uid', 'queue', 'slot', 'pool')
  l = { n = n, uid = f[1] or '', queue = f[2] or '', slot = f[3] or '', pool = f[4] or '' }
  lanes[n] = l
  return l
end

-- Lane sets hold the part of a task id after the slot, which all tasks of a
-- lane share.
local function suffix_of(id) return string.sub(id, -26) end
local function id_of(l, suffix) return l.slot .. '-' .. suffix end

-- The lease index names the lane too, so that a lease whose record is missing
-- can still be taken off its queue. The order is that of the ids.
local function lease_member(l, id) return id .. ':' .. l.n end

-- Moves tasks of lane later that are due to lane ready, at most 100.
local function promote_tasks(l)
  local due = call('ZRANGEBYSCORE', later_key(l.n), '-inf', now * 32 + 31, 'LIMIT', 0, 100, 'WITHSCORES')
  if #due == 0 then return end
  local add, gone = {}, {}
  for i = 1, #due, 2 do
    local score = tonumber(due[i + 1])
    add[i] = (score % 32) * BAND + floor(score / 32)
    add[i + 1] = due[i]
    gone[#gone + 1] = due[i]
  end
  call('ZADD', ready_key(l.n), unpack(add))
  call('ZREM', later_key(l.n), unpack(gone))
  count(l.uid, 'scheduled', -#gone)
  count(l.uid, 'ready', #gone)
end

local function lane_priority(s, rank) return max(0, min(9, s.priority + 9 - floor(rank / 2) - 5)) end

-- When the lane can be picked, and the priority of its head; nil when it is in
-- no set.
local function lane_time(l, s)
  if s.deleted then return nil end
  local head = call('ZRANGE', ready_key(l.n), 0, 0, 'WITHSCORES')
  if head[1] then return s.paused, lane_priority(s, floor(head[2] / BAND)) end
  head = call('ZRANGE', later_key(l.n), 0, 0, 'WITHSCORES')
  if not head[1] then return nil end
  return max(s.paused, floor(head[2] / 32)), lane_priority(s, head[2] % 32)
end

-- Takes the lane out of the queue's sets of a pool.
local function leave_pool(l, pool)
  call('ZREM', queue_open_key(pool, l.queue), l.n)
  call('ZREM', queue_wait_key(pool, l.queue), l.n)
end

local function since_of(old, waited, turn_end)
  if turn_end then return now end
  if old then return old % BAND end
  if waited and waited <= now then return waited end
  return now
end

local function place_lane(l, turn_end)
  local s = get_source(l.uid)
  if l.pool ~= s.pool and l.pool ~= '' then
    leave_pool(l, l.pool)
    l.pool = ''
    -- The queue has to be placed in the pool that the lane comes to.
    local q = get_queue(l.queue)
    if q.placed then q.placed[s.pool] = nil end
  end
  promote_tasks(l)
  local at, priority = lane_time(l, s)
  if not at then
    if l.pool ~= '' then leave_pool(l, l.pool) end
    return
  end
  if l.pool == '' then
    l.pool = s.pool
    call('HSET', lane_key(l.n), 'pool', l.pool)
  end
  hold_pool(get_queue(l.queue), l.pool)
  local open, wait = queue_open_key(l.pool, l.queue), queue_wait_key(l.pool, l.queue)
  if at > now then
    call('ZREM', open, l.n)
    call('ZADD', wait, at, l.n)
    return
  end
  local old = tonumber(call('ZSCORE', open, l.n) or nil)
  local waited
  if not old then
    waited = tonumber(call('ZSCORE', wait, l.n) or nil)
    if waited then call('ZREM', wait, l.n) end
  end
  local score = (9 - priority) * BAND + since_of(old, waited, turn_end)
  if score ~= old then call('ZADD', open, score, l.n) end
end
