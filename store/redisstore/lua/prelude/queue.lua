-- Queues: each one record, read once a script and written once at its end, and
-- what is known of it in each of its pools.
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

local function finite(at) return at == INF and FOREVER or at end

-- The queue in one pool, as its record has it: how many picks there were;
-- whether it has lanes with waiting tasks there (held); its score in pool open
-- and in pool wait (false = none); how many lanes are in its queue open and queue
-- wait; and where that is one, its name and score (of queue wait: first, nil =
-- not known). The sets themselves exist only where several lanes share them.
function part(q, pool)
  local a = q.parts[pool]
  if not a then
    a = {
      pool = pool, picks = 0, held = false, open = false, wait = false, opens = 0, waits = 0, first = nil,
      open_key = queue_open_key(pool, q.name), wait_key = queue_wait_key(pool, q.name),
      pool_open = pool_open_key(pool), pool_wait = pool_wait_key(pool),
    }
    q.parts[pool] = a
    know_heads(a.open_key, nil, nil)
  end
  return a
end

do
  -- Until when an empty queue is remembered.
  local function queue_end(q) return max(q.next_grant, q.block, q.operator) end

  local function pack_part(a)
    local head = a.opens == 1 and one_head(a.open_key)
    local first = a.waits == 1 and a.first
    return { a.pool, a.picks, a.held, a.open, a.wait and finite(a.wait), a.opens, a.waits, head and head.name or false,
      head and head.score or 0, first and a.first_name or false, first and finite(first) or 0 }
  end

  local function read_part(q, p)
    local a = part(q, p[1])
    a.picks, a.held, a.open, a.wait, a.opens, a.waits = p[2], p[3], p[4], p[5] and until_(p[5]), p[6], p[7]
    if a.waits == 1 then a.first_name, a.first = p[10], until_(p[11]) end
    if a.opens == 1 then know_heads(a.open_key, p[8], p[9])
    elseif a.opens > 1 then all_heads[a.open_key] = nil end
  end

  local function new_queue(name)
    return { name = name, next_grant = 0, block = 0, step = 0, operator = 0, in_flight = 0, waiting = 0, asked = 0, gate = '',
      parts = {} }
  end

  local function delete_queue(q)
    call('DEL', queue_key(q.name))
    call('ZREM', QUEUES, reversed(q.name))
    call('ZREM', IDLE, q.name)
  end

  local function read_queue(name, packed)
    local q = new_queue(name)
    if packed then
      local f = cmsgpack.unpack(packed)
      q.exists = true
      q.next_grant, q.block, q.step, q.operator = f[1], f[2], f[3], until_(f[4])
      q.in_flight, q.waiting, q.asked, q.gate, q.cached = f[5], f[6], f[7], f[8], f[9]
      for i = 10, #f do read_part(q, f[i]) end
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

  function get_queue(name) return queues[name] or read_queue(name, call('GET', queue_key(name))) end

  -- Reads the lanes and queues that were not read yet, and other keys of strings,
  -- all at once; returns the values of the other keys first.
  function read_all(numbers, names, keys)
    local others, unread_lanes, lane_names, unread_queues = #keys, {}, {}, {}
    for _, n in ipairs(numbers) do
      if not lanes[n] then
        local k, name = #unread_lanes + 1, decimal(n)
        unread_lanes[k], lane_names[k], keys[#keys + 1] = n, name, lane_key(name)
      end
    end
    for _, name in ipairs(names) do
      if not queues[name] then unread_queues[#unread_queues + 1], keys[#keys + 1] = name, queue_key(name) end
    end
    if #keys == 0 then return keys end
    local found = call('MGET', unpack(keys))
    for i, n in ipairs(unread_lanes) do
      if not lanes[n] then read_lane(n, lane_names[i], found[others + i]) end
    end
    for i, name in ipairs(unread_queues) do
      if not queues[name] then read_queue(name, found[others + #unread_lanes + i]) end
    end
    return found
  end

  local function pack_queue(q)
    local settings = q.resolved and pack_settings(q.settings) or q.cached or ''
    -- With room for a part, as most have one.
    local f = { q.next_grant, q.block, q.step, finite(q.operator), q.in_flight, q.waiting, q.asked, q.gate, settings, nil }
    for _, a in pairs(q.parts) do
      if a.held or a.picks > 0 then f[#f + 1] = pack_part(a) end
    end
    return cmsgpack.pack(f)
  end

  -- Notes what is to be written of a queue: its record, or that nothing holds it.
  local function save_queue(q, w)
    local idle, gone = q.in_flight <= 0 and q.waiting <= 0, queue_end(q)
    if idle and gone <= now then
      if q.exists then
        w.gone[#w.gone + 1], w.unnamed[#w.unnamed + 1] = queue_key(q.name), reversed(q.name)
        if q.idle then w.busy[#w.busy + 1] = q.name end
      end
      queues[q.name] = nil
      return
    end
    writes[#writes + 1], writes[#writes + 2] = queue_key(q.name), pack_queue(q)
    if not q.exists then w.named[#w.named + 1], w.named[#w.named + 2] = 0, reversed(q.name) end
    if idle and gone < INF then w.idle[#w.idle + 1], w.idle[#w.idle + 2] = gone, q.name
    elseif q.idle then w.busy[#w.busy + 1] = q.name end
    q.exists, q.idle = true, idle
  end

  -- Writes the queues that were changed, and all other records.
  function save_queues()
    local w = { gone = {}, named = {}, unnamed = {}, idle = {}, busy = {} }
    for _, q in ipairs(queue_list) do
      if q.dirty then
        q.dirty = false
        save_queue(q, w)
      end
    end
    flush_writes()
    call_for_all('DEL', nil, w.gone)
    call_for_all('ZREM', QUEUES, w.unnamed)
    call_for_all('ZADD', QUEUES, w.named)
    call_for_all('ZREM', IDLE, w.busy)
    call_for_all('ZADD', IDLE, w.idle)
  end
end

-- at each call
queues, queue_list, hints = {}, {}, {}
