-- Queues: read once a script, written once at its end; and where a queue
-- belongs among those of each of its pools ("place queue" in
-- dispatch/scheduling.md).
local queues, queue_list, hints

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

-- Until when an empty queue is remembered.
local function queue_end(q) return max(q.next_grant, q.block, q.operator) end

-- The queue in one pool. held: it has lanes with waiting tasks there. Its scores
-- in the pool's sets are open and wait, that of its first waiting lane is first:
-- false = none, nil = not known yet.
function part(q, pool)
  local a = q.parts[pool]
  if not a then
    a = {
      pool = pool, picks = 0, open_key = queue_open_key(pool, q.name), wait_key = queue_wait_key(pool, q.name),
      pool_open = pool_open_key(pool), pool_wait = pool_wait_key(pool),
    }
    q.parts[pool] = a
  end
  return a
end

local function pack_parts(q)
  local out = {}
  for pool, a in pairs(q.parts) do
    if a.held or a.picks > 0 then out[#out + 1] = pool .. ':' .. a.picks .. ':' .. (a.held and 1 or 0) end
  end
  table.sort(out)
  return table.concat(out, ',')
end

do
  local function new_queue(name)
    return { name = name, next_grant = 0, block = 0, step = 0, operator = 0, in_flight = 0, waiting = 0, asked = 0, parts = {} }
  end

  -- "parts" has "<pool>:<picks>:<held>" of each pool.
  local function read_parts(q, packed)
    for pool, picks, held in string.gmatch(packed, '([^,:]*):(%d+):(%d)') do
      local a = part(q, pool)
      a.picks, a.held = tonumber(picks), held == '1'
    end
  end

  function get_queue(name)
    local q = queues[name]
    if q then return q end
    local f = call('HMGET', queue_key(name), 'next', 'block', 'step', 'operator', 'flight', 'waiting', 'parts', 'settings',
      'asked')
    q = new_queue(name)
    if f[1] then
      q.exists = true
      q.next_grant, q.block, q.step, q.operator = tonumber(f[1]), tonumber(f[2]), tonumber(f[3]), until_(f[4])
      q.in_flight, q.waiting, q.cached, q.asked = tonumber(f[5]), tonumber(f[6]), f[8], tonumber(f[9] or '0')
      read_parts(q, f[7])
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
end

-- The settings, resolved once for each version of the rules.
local function settings_of(q)
  if q.settings then return q.settings end
  q.settings = cached_settings(q.cached)
  if not q.settings then
    q.settings = resolve_settings(q.name)
    q.resolved = true
  end
  return q.settings
end

-- The delay between request starts: the rule's, or what the host asks for where
-- that is longer, of which a minute counts when no max_delay is set
-- (dispatch.QueueSettings.Paced).
local function delay_of(q)
  local s = settings_of(q)
  if q.asked <= s.delay then return s.delay end
  return max(s.delay, min(q.asked, s.max_delay > 0 and s.max_delay or 60000))
end

local function raise_next_grant(q, at)
  if at > q.next_grant then q.next_grant, q.dirty = at, true end
end

local function queue_gate(q)
  local s = settings_of(q)
  local bound = now_end + max(longest_delay(s), delay_of(q))
  if q.next_grant > bound then q.next_grant, q.dirty = bound, true end
  if s.paused or s.deny or q.in_flight >= s.in_flight then return INF end
  return max(q.next_grant, q.block, q.operator)
end

-- Notes that something of the pool can be granted at `at`, sooner than before.
local function sooner(pool, at)
  if at < (hints[pool] or INF) then hints[pool] = at end
end

-- The first of the lanes that can be picked: its score and its number, or false.
local function first_open(a)
  local head = read_heads(a.open_key, 2)[1]
  if not head then return false end
  return head.score, head.name
end

-- When the first of the lanes that wait can be picked, or false.
local function first_waiting(a)
  if a.first == nil then a.first = tonumber(call('ZRANGE', a.wait_key, 0, 0, 'WITHSCORES')[2]) or false end
  return a.first
end

local place_queue
do
  -- Puts the queue among those of the pool that wait until `at`.
  local function queue_waits(q, a, at)
    local was_open = a.open
    if a.open ~= false then
      was_open = call('ZREM', a.pool_open, q.name) == 1
      move_head(a.pool_open, q.name, a.open, false)
      a.open = false
    end
    if was_open then a.wait = false end
    if a.wait == nil then a.wait = tonumber(call('ZSCORE', a.pool_wait, q.name) or nil) or false end
    local before = a.wait
    if before == at then return end
    call('ZADD', a.pool_wait, at, q.name)
    a.wait = at
    if was_open then return end
    if not before then call('SADD', POOLS, a.pool) end
    -- A queue that is not the first to come changes nothing for who waits.
    if at < (before or INF) and call('ZRANK', a.pool_wait, q.name) == 0 then sooner(a.pool, at) end
  end

  -- Puts the queue among those of the pool that can be granted from.
  local function queue_opens(q, a, head, turn_end)
    if a.open == nil then a.open = tonumber(call('ZSCORE', a.pool_open, q.name) or nil) or false end
    if a.open then a.wait = false end
    if a.wait == nil then a.wait = tonumber(call('ZSCORE', a.pool_wait, q.name) or nil) or false end
    local score = floor(head / BAND) * BAND + since_of(a.open, a.wait, turn_end)
    if a.wait then call('ZREM', a.pool_wait, q.name)
    elseif not a.open then call('SADD', POOLS, a.pool) end
    if not a.open then sooner(a.pool, now) end
    if score ~= a.open then
      call('ZADD', a.pool_open, decimal(score), q.name)
      move_head(a.pool_open, q.name, a.open, score)
    end
    a.open, a.wait = score, false
  end

  -- Places the queue in one pool; it is in pool open then if a.open says so.
  function place_queue(q, a, turn_end)
    a.placed = true
    if (first_waiting(a) or INF) <= now then
      for _, n in ipairs(call('ZRANGEBYSCORE', a.wait_key, '-inf', now, 'LIMIT', 0, 100)) do place_lane(get_lane(n), false) end
      a.placed = true
    end
    local head = first_open(a)
    if not head and not first_waiting(a) then
      if a.open ~= false then
        call('ZREM', a.pool_open, q.name)
        move_head(a.pool_open, q.name, a.open, false)
      end
      if a.wait ~= false then call('ZREM', a.pool_wait, q.name) end
      a.open, a.wait = false, false
      if a.held then a.held, q.dirty = false, true end
      return
    end
    local at = max(queue_gate(q), head and 0 or a.first)
    if at <= now and head then queue_opens(q, a, head, turn_end) else queue_waits(q, a, at) end
  end
end

-- Places the queue in all its pools. turn is the pool in which it had a turn
-- just now, nil for none. Placing can move lanes to another pool, whose source
-- was moved: then that one is placed (again).
local function place_queue_everywhere(q, turn)
  for _, a in pairs(q.parts) do a.placed = nil end
  for _ = 1, 3 do
    local todo = {}
    for pool, a in pairs(q.parts) do
      if a.held and not a.placed then todo[#todo + 1] = pool end
    end
    if #todo == 0 then return end
    table.sort(todo)
    for _, pool in ipairs(todo) do place_queue(q, q.parts[pool], pool == turn) end
    turn = nil
  end
end

-- What the end of a lease does to its queue: kinds as dispatch.QueueEffectKind.
local SUCCEEDED, BLOCKED, EXPIRED = 1, 2, 3

local lease_ended
do
  local function block_queue(q, s, retry_after)
    if q.block > now then
      q.block = max(q.block, now + min(retry_after, s.max_block))
      return
    end
    q.step = q.step + 1
    local length = retry_after > 0 and retry_after or 10000 * 2 ^ min(q.step - 1, 30)
    q.block = now + min(length, s.max_block)
  end

  -- asked is what the host asks for from now on, nil when that was not said.
  function lease_ended(q, kind, fetch, retry_after, deadline, asked)
    q.in_flight, q.dirty = q.in_flight - 1, true
    if asked and asked ~= q.asked then q.asked, q.asked_anew = asked, true end
    local s, gap = settings_of(q), delay_of(q)
    if kind == EXPIRED then
      raise_next_grant(q, deadline + gap)
      return
    elseif kind > EXPIRED then
      return
    end
    raise_next_grant(q, now + gap - fetch)
    if fetch > 0 and s.factor > 0 then
      -- In nanoseconds, as Go computes it, cut to ms.
      local delay = floor(floor(s.factor * (fetch * 1000000)) / 1000000)
      raise_next_grant(q, now + min(delay, s.max_delay > 0 and s.max_delay or DAY))
    end
    if kind == SUCCEEDED then q.step = 0 end
    if kind == BLOCKED then block_queue(q, s, retry_after) end
  end
end

local function finite(at) return at == INF and FOREVER or at end

-- Writes the queue, or deletes it when nothing holds it.
local function save_queue(q)
  if not q.dirty then return end
  q.dirty = false
  local idle, gone = q.in_flight <= 0 and q.waiting <= 0, queue_end(q)
  if idle and gone <= now then
    if q.exists then delete_queue(q) end
    queues[q.name] = nil
    return
  end
  local packed = q.resolved and pack_settings(q.settings) or q.cached or ''
  call('HSET', queue_key(q.name), 'next', decimal(q.next_grant), 'block', decimal(q.block), 'step', q.step,
    'operator', decimal(finite(q.operator)), 'flight', q.in_flight, 'waiting', q.waiting, 'parts', pack_parts(q),
    'settings', packed)
  -- A field of its own, which few queues have.
  if q.asked_anew then
    call('HSET', queue_key(q.name), 'asked', q.asked)
    q.asked_anew = false
  end
  if not q.exists then call('ZADD', QUEUES, 0, reversed(q.name)) end
  if idle and gone < INF then call('ZADD', IDLE, gone, q.name)
  elseif q.idle then call('ZREM', IDLE, q.name) end
  q.exists, q.idle = true, idle
end

-- at each call
queues, queue_list, hints = {}, {}, {}
