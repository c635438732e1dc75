-- Queues: each one record, read once a script and written once at its end, and
-- what is known of it in each of its pools.
local queues, queue_list
-- When something of a pool can be granted, sooner than before; false = nothing.
local hints
local function tell_of(pool, at)
  hints = hints or {}
  if at < (hints[pool] or INF) then hints[pool] = at end
end

-- The labels of a name in reverse order.
local reversed
do
  local last, last_reversed -- what the last name had after its first label; most end alike
  function reversed(name)
    local dot = string.find(name, '.', 1, true)
    if not dot then return name end
    local rest = string.sub(name, dot + 1)
    if rest ~= last then last_reversed, last = reversed(rest), rest end
    return last_reversed .. '.' .. string.sub(name, 1, dot - 1)
  end
end

do
  -- The queue in one pool, as its record has it: how many picks there were;
  -- whether it has lanes with waiting tasks there (held); its score in pool open
  -- and in pool wait (false = none); how many lanes are in its queue open and queue
  -- wait; and where that is one, its name and score (of queue wait: first, nil =
  -- not known). The sets themselves exist only where several lanes share them. Aside
  -- says that lanes of it were put aside, or wait to be told of (named.lua). In one
  -- constructor, whose table has room for 16 fields.
  local function new_part(queue, pool, picks, held, open, wait, opens, waits, head_name, head, first_name, first, aside)
    return {
      pool = pool, queue = queue, picks = picks, held = held, open = open, wait = wait, opens = opens, waits = waits,
      head_name = head_name, head = head, first_name = first_name, first = first, aside = aside, placed = false, had_turn = false,
    }
  end

  function part(q, pool)
    local a = q.parts[pool]
    if not a then
      a = new_part(q.name, pool, 0, false, false, false, 0, 0, false, false, false, false, false)
      q.parts[pool] = a
    end
    return a
  end

  -- Next grant, block, step, until when operators hold it; leases in flight and
  -- waiting tasks; what the host asks for; the operators' gates (MessagePack: until
  -- and JSON of the block, then of the pause); the settings as they were cached.
  local QUEUE = '>ddI4di4i4dI2c0I2c0'
  -- Of each pool: its name, picks, what holds (a bit each of held, open, wait, aside), open,
  -- wait, opens, waits; and of the lanes that are alone score and name.
  local PART = '>Bc0I6BddI4I4ddBc0Bc0'
  local HELD, OPEN, WAIT, ASIDE = 1, 2, 4, 8

  -- Until when an empty queue is remembered.
  local function queue_end(q) return max(q.next_grant, q.block, q.operator) end

  local function pack_part(a)
    local bits = (a.held and HELD or 0) + (a.open and OPEN or 0) + (a.wait and WAIT or 0) + (a.aside and ASIDE or 0)
    local head, first = a.opens == 1 and a.head_name or '', a.waits == 1 and a.first_name or ''
    return struct.pack(PART, #a.pool, a.pool, a.picks, bits, a.open or 0, a.wait or 0, a.opens, a.waits,
      a.opens == 1 and a.head or 0, a.waits == 1 and a.first or 0, #head, head, #first, first)
  end

  -- Reads the part at a position of the record, and answers where the next is.
  local function read_part(queue, packed, at)
    local pool, picks, bits, open, wait, opens, waits, head, first, head_name, first_name, to = struct.unpack(PART, packed, at)
    return new_part(queue, pool, picks, bits % 2 >= HELD, bits % 4 >= OPEN and open, bits % 8 >= WAIT and wait, opens, waits,
      head_name, head, first_name, waits == 1 and first, bits >= ASIDE), to
  end

  -- In one constructor, as new_part.
  local function new_queue(name, exists, next_grant, block, step, operator, in_flight, waiting, asked, gate, cached, parts)
    return {
      name = name, exists = exists, next_grant = next_grant, block = block, step = step, operator = operator, in_flight = in_flight,
      waiting = waiting, asked = asked, gate = gate, cached = cached, settings = false, parts = parts, idle = false,
      dirty = false, touched = false,
    }
  end
  local function no_queue(name) return new_queue(name, false, 0, 0, 0, 0, 0, 0, 0, '', '', {}) end

  local function delete_queue(q)
    call('DEL', queue_key(q.name))
    call('ZREM', QUEUES, reversed(q.name))
    call('ZREM', IDLE, q.name)
  end

  local function unpack_queue(name, packed)
    local next_grant, block, step, operator, in_flight, waiting, asked, gate, cached, at = struct.unpack(QUEUE, packed)
    local parts, a
    if at <= #packed then
      a, at = read_part(name, packed, at)
      parts = { [a.pool] = a } -- nearly all have one
    end
    while at <= #packed do
      a, at = read_part(name, packed, at)
      parts[a.pool] = a
    end
    return new_queue(name, true, next_grant, block, step, operator, in_flight, waiting, asked, gate, cached, parts or {})
  end

  local function read_queue(name, packed)
    local q = packed and unpack_queue(name, packed) or no_queue(name)
    if packed then
      q.idle = q.in_flight <= 0 and q.waiting <= 0
      if q.idle and queue_end(q) <= now then
        delete_queue(q)
        q = no_queue(name)
      end
    end
    queues[name] = q
    queue_list[#queue_list + 1] = q
    return q
  end

  function get_queue(name) return queues[name] or read_queue(name, call('GET', queue_key(name))) end

  -- Adds the keys of the lanes that were not read yet; returns their numbers and names,
  -- flat. Of a lane there may be the name for the number.
  local function unread_lanes(numbers, keys)
    local unread = {}
    for i = 1, #numbers do
      local name = numbers[i]
      local n = tonumber(name)
      if not lanes[n] then
        if n == name then name = decimal(n) end
        local k = #unread
        unread[k + 1], unread[k + 2], keys[#keys + 1] = n, name, lane_key(name)
      end
    end
    return unread
  end

  -- Adds the keys of the queues that were not read yet; returns their names.
  local function unread_queues(names, keys)
    local unread = {}
    for i = 1, #names do
      local name = names[i]
      if not queues[name] then unread[#unread + 1], keys[#keys + 1] = name, queue_key(name) end
    end
    return unread
  end

  -- Reads the lanes and queues that were not read yet, and other keys of strings, all at
  -- once, each nil for none; returns the values of the other keys first.
  function read_all(numbers, names, keys)
    keys = keys or {}
    local at = #keys
    local of_lanes, of_queues = numbers and unread_lanes(numbers, keys), names and unread_queues(names, keys)
    if #keys == 0 then return keys end
    local found = call('MGET', unpack(keys))
    if of_lanes then
      for i = 1, #of_lanes, 2 do
        local n = of_lanes[i]
        at = at + 1
        if not lanes[n] then read_lane(n, of_lanes[i + 1], found[at]) end
      end
    end
    if of_queues then
      for i = 1, #of_queues do
        local name = of_queues[i]
        if not queues[name] then read_queue(name, found[at + i]) end
      end
    end
    return found
  end

  local function pack_queue(q)
    local packed = struct.pack(QUEUE, q.next_grant, q.block, q.step, q.operator, q.in_flight, q.waiting, q.asked,
      #q.gate, q.gate, #q.cached, q.cached)
    for _, a in pairs(q.parts) do
      if a.held or a.picks > 0 then packed = packed .. pack_part(a) end
    end
    return packed
  end

  -- Adds what a command is to be given to w, by a list of each command that is used.
  local function add(w, list, value, second)
    local values = w[list] or {}
    local n = #values
    w[list], values[n + 1], values[n + 2] = values, value, second
  end

  -- Notes what is to be written of a queue: its record, or that nothing holds it.
  local function save_queue(q, w)
    local idle, gone = q.in_flight <= 0 and q.waiting <= 0, queue_end(q)
    if idle and gone <= now then
      if q.exists then
        add(w, 'gone', queue_key(q.name))
        add(w, 'unnamed', reversed(q.name))
        if q.idle then add(w, 'busy', q.name) end
      end
      queues[q.name] = nil
      return
    end
    writes[#writes + 1], writes[#writes + 2] = queue_key(q.name), pack_queue(q)
    if not q.exists then add(w, 'named', '0', reversed(q.name)) end
    if idle and gone < INF then add(w, 'idle', gone, q.name)
    elseif q.idle then add(w, 'busy', q.name) end
    q.exists, q.idle = true, idle
  end

  -- Names queues whose records are new; says whether all of the names are.
  local function name_queues(names)
    local came = 0
    for i = 1, #names, 1000 do came = came + call('ZADD', QUEUES, unpack(names, i, min(i + 999, #names))) end
    return came == #names / 2
  end

  -- Counts what stands in the lanes of a queue, of so many lanes; returns how many it has.
  local function recount(q, most)
    local numbers = call('ZRANGE', queue_lanes_key(q.name), 0, most - 1)
    q.in_flight, q.waiting, q.dirty = 0, 0, true
    for _, n in ipairs(numbers) do
      local key = tasks_key(n)
      local leased = call('ZCOUNT', key, decimal(LEASED_FROM), '(' .. decimal(ORPHAN_FROM))
      q.in_flight, q.waiting = q.in_flight + leased, q.waiting + call('ZCARD', key) - leased
    end
    return #numbers
  end

  -- Makes up for records that were lost: a queue whose record is new, and its name is
  -- not, tells of one. Looks into MOST lanes in all: queues beyond them count what comes
  -- from here on.
  local MOST = 1000
  local function recount_new(names)
    local new, left = {}, MOST
    for i = 2, #names, 2 do new[names[i]] = true end
    for _, q in ipairs(queue_list) do
      if left > 0 and queues[q.name] == q and new[reversed(q.name)] then left = left - recount(q, left) end
    end
    save_queues()
  end

  -- Writes the queues that were changed, and all other records.
  function save_queues()
    local w = {}
    for i = 1, #queue_list do
      local q = queue_list[i]
      if q.dirty then
        q.dirty = false
        save_queue(q, w)
      end
    end
    flush_writes()
    if not next(w) then return end -- as nearly always
    call_for_all('DEL', nil, w.gone)
    call_for_all('ZREM', QUEUES, w.unnamed)
    call_for_all('ZREM', IDLE, w.busy)
    call_for_all('ZADD', IDLE, w.idle)
    if w.named and not name_queues(w.named) then recount_new(w.named) end
  end
end

-- at each call
queues, queue_list, hints = {}, {}, false
