-- Queues: read once a script, written once at its end; and where a queue
-- belongs among those of each of its pools ("place queue" in
-- dispatch/scheduling.md).
local queues, queue_list = {}, {}
local hints = {}

local function reversed(name)
  local out, rest = nil, name
  while true do
    local dot = string.find(rest, '.', 1, true)
    local label = dot and string.sub(rest, 1, dot - 1) or rest
    out = out and (label .. '.' .. out) or label
    if not dot then return out end
    rest = string.sub(rest, dot + 1)
  end
end

local function delete_queue(q)
  call('DEL', queue_key(q.name))
  call('ZREM', QUEUES, reversed(q.name))
  call('ZREM', IDLE, q.name)
end

local function new_queue(name)
  return { name = name, next_grant = 0, block = 0, step = 0, operator = 0, in_flight = 0, waiting = 0, pools = {} }
end

-- Until when an empty queue is remembered.
local function queue_end(q) return max(q.next_grant, q.block, q.operator) end

function get_queue(name)
  local q = queues[name]
  if q then return q end
  local f = call('HMGET', queue_key(name), 'next', 'block', 'step', 'operator', 'flight', 'waiting', 'pools')
  q = new_queue(name)
  if f[1] then
    q.exists = true
    q.next_grant, q.block, q.step, q.operator = tonumber(f[1]), tonumber(f[2]), tonumber(f[3]), until_(f[4])
    q.in_flight, q.waiting = tonumber(f[5]), tonumber(f[6])
    for pool in string.gmatch(f[7], '[^,]+') do q.pools[pool] = true end
    q.idle = q.in_flight <= 0 and q.waiting <= 0
    if q.idle and queue_end(q) <= now then
      delete_queue(q)
      q = new_queue(name)
    end
  end
  queues[name] = q
  queue_list[#queue_list + 1] = q
  return q
end

function hold_pool(q, pool)
  if not q.pools[pool] then
    q.pools[pool] = true
    q.dirty = true
  end
end

local function settings_of(q)
  if not q.settings then q.settings = resolve_settings(q.name) end
  return q.settings
end

local function raise_next_grant(q, at)
  if at > q.next_grant then q.next_grant, q.dirty = at, true end
end

local function queue_gate(q)
  local s = settings_of(q)
  local bound = now + longest_delay(s)
  if q.next_grant > bound then q.next_grant, q.dirty = bound, true end
  if s.paused or s.deny or q.in_flight >= s.in_flight then return INF end
  return max(q.next_grant, q.block, q.operator)
end

-- Notes that something of the pool can be granted at `at`, sooner than before.
local function sooner(pool, at)
  if at < (hints[pool] or INF) then hints[pool] = at end
end

-- Places the queue in one pool and gives its score in pool open, or nil.
local function place_queue(q, pool, turn_end)
  local open, wait = queue_open_key(pool, q.name), queue_wait_key(pool, q.name)
  local first = call('ZRANGE', wait, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= now then
    for _, n in ipairs(call('ZRANGEBYSCORE', wait, '-inf', now, 'LIMIT', 0, 100)) do place_lane(get_lane(n), false) end
    first = call('ZRANGE', wait, 0, 0, 'WITHSCORES')
  end
  local pool_open, pool_wait = pool_open_key(pool), pool_wait_key(pool)
  local head = call('ZRANGE', open, 0, 0, 'WITHSCORES')
  if not head[1] and not first[1] then
    call('ZREM', pool_open, q.name)
    call('ZREM', pool_wait, q.name)
    if q.pools[pool] then q.pools[pool], q.dirty = nil, true end
    return nil
  end
  local at = max(queue_gate(q), head[1] and 0 or tonumber(first[2]))
  local old = tonumber(call('ZSCORE', pool_open, q.name) or nil)
  if at <= now and head[1] then
    local waited
    if not old then
      waited = tonumber(call('ZSCORE', pool_wait, q.name) or nil)
      if waited then call('ZREM', pool_wait, q.name) end
      if not waited then call('SADD', POOLS, pool) end
      sooner(pool, now)
    end
    local score = floor(head[2] / BAND) * BAND + since_of(old, waited, turn_end)
    if score ~= old then call('ZADD', pool_open, score, q.name) end
    return score
  end
  if old then call('ZREM', pool_open, q.name) end
  local waited = not old and tonumber(call('ZSCORE', pool_wait, q.name) or nil)
  if at ~= waited then
    call('ZADD', pool_wait, at, q.name)
    if not old and not waited then call('SADD', POOLS, pool) end
    -- A queue that is not the first to come changes nothing for who waits.
    if not old and at < (waited or INF) and call('ZRANK', pool_wait, q.name) == 0 then sooner(pool, at) end
  end
  return nil
end

-- Places the queue in all its pools. turn is the pool in which it had a turn
-- just now, nil for none. Placing moves lanes to other pools at most once.
local function place_queue_everywhere(q, turn)
  for _ = 1, 2 do
    local todo = {}
    for pool in pairs(q.pools) do
      if not (q.placed and q.placed[pool]) then todo[#todo + 1] = pool end
    end
    table.sort(todo)
    q.placed = q.placed or {}
    for _, pool in ipairs(todo) do
      q.placed[pool] = true
      place_queue(q, pool, pool == turn)
    end
  end
  q.placed = nil
end

-- What the end of a lease does to its queue: kinds as dispatch.QueueEffectKind.
local REPORTED, SUCCEEDED, BLOCKED, EXPIRED = 0, 1, 2, 3

local function block_queue(q, s, retry_after)
  if q.block > now then
    q.block = max(q.block, now + min(retry_after, s.max_block))
    return
  end
  q.step = q.step + 1
  local length = retry_after > 0 and retry_after or 10000 * 2 ^ min(q.step - 1, 30)
  q.block = now + min(length, s.max_block)
end

local function lease_ended(q, kind, fetch, retry_after, deadline)
  q.in_flight, q.dirty = q.in_flight - 1, true
  local s = settings_of(q)
  if kind == EXPIRED then
    raise_next_grant(q, deadline + s.delay)
    return
  elseif kind > EXPIRED then
    return
  end
  raise_next_grant(q, now + s.delay - fetch)
  if fetch > 0 and s.factor > 0 then
    -- In nanoseconds, as Go computes it, cut to ms.
    local delay = floor(floor(s.factor * (fetch * 1000000)) / 1000000)
    raise_next_grant(q, now + min(delay, s.max_delay > 0 and s.max_delay or DAY))
  end
  if kind == SUCCEEDED then q.step = 0 end
  if kind == BLOCKED then block_queue(q, s, retry_after) end
end

local function finite(at) return at == INF and FOREVER or at end

-- Writes the queue, or deletes it when nothing holds it.
local function save_queue(q)
  if not q.dirty then return end
  q.dirty = false
  local idle, gone = q.in_flight <= 0 and q.waiting <= 0, queue_end(q)
  if idle and gone <= now then
    if q.exists then delete_queue(q) else call('DEL', queue_key(q.name)) end
    queues[q.name] = nil
    return
  end
  local pools = {}
  for pool in pairs(q.pools) do pools[#pools + 1] = pool end
  table.sort(pools)
  call('HSET', queue_key(q.name), 'next', decimal(q.next_grant), 'block', decimal(q.block), 'step', q.step,
    'operator', decimal(finite(q.operator)), 'flight', q.in_flight, 'waiting', q.waiting, 'pools', table.concat(pools, ','))
  if not q.exists then call('ZADD', QUEUES, 0, reversed(q.name)) end
  if idle and gone < INF then call('ZADD', IDLE, gone, q.name)
  elseif q.idle then call('ZREM', IDLE, q.name) end
  q.exists, q.idle = true, idle
end
