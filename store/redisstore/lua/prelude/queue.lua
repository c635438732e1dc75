-- Queues: each one record, read once a script and written once at its end, and
-- what is known of it in each of its pools.
local queues = {} -- by name
local queue_list, n_queues = {}, 0 -- as lanes: the first n_queues are those of this call
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
  -- says that lanes of it were put aside, or wait to be told of (named.lua). Those of a
  -- queue are q.part, false for none, and what each has as next: nearly all have one.
  local function add_part(q, last)
    local a = last and {} or q.own
    if last then last.next = a else q.part = a end
    a.queue, a.placed, a.had_turn, a.next = q.name, false, false, false
    return a
  end

  function part(q, pool)
    local a, last = q.part, nil
    while a do
      if a.pool == pool then return a end
      a, last = a.next, a
    end
    a = add_part(q, last)
    a.pool, a.picks, a.held, a.open, a.wait, a.opens, a.waits, a.aside = pool, 0, false, false, false, 0, 0, false
    a.head_name, a.head, a.first_name, a.first = false, false, false, false
    return a
  end

  -- Next grant, until when holds stop it, block, step, when the block began; leases in flight
  -- and waiting tasks; what the host asks for; the settings as they were cached.
  local QUEUE = 'dddI4di4i4dI2c0'
  -- Of each pool: its name, picks, what holds (a bit each of held, open, wait, aside), open,
  -- wait, opens, waits; and of the lanes that are alone score and name.
  local PART = 'Bc0I6BddI4I4ddBc0Bc0'
  local WITH_PART = '>' .. QUEUE .. PART
  QUEUE, PART = '>' .. QUEUE, '>' .. PART
  local HELD, OPEN, WAIT, ASIDE = 1, 2, 4, 8

  -- Until when an empty queue is remembered.
  local function queue_end(q) return max(q.next_grant, q.block) end

  -- What is packed of a part.
  local function part_values(a)
    local bits = (a.held and HELD or 0) + (a.open and OPEN or 0) + (a.wait and WAIT or 0) + (a.aside and ASIDE or 0)
    local head, first = a.opens == 1 and a.head_name or '', a.waits == 1 and a.first_name or ''
    return #a.pool, a.pool, a.picks, bits, a.open or 0, a.wait or 0, a.opens, a.waits, a.opens == 1 and a.head or 0,
      a.waits == 1 and a.first or 0, #head, head, #first, first
  end

  -- Reads the part at a position of the record, and answers where the next is.
  local function read_part(a, packed, at)
    local bits, open, wait, first, to
    a.pool, a.picks, bits, open, wait, a.opens, a.waits, a.head, first, a.head_name, a.first_name, to = struct.unpack(PART, packed, at)
    a.held, a.open, a.wait, a.aside = bits % 2 >= HELD, bits % 4 >= OPEN and open, bits % 8 >= WAIT and wait, bits >= ASIDE
    a.first = a.waits == 1 and first
    return to
  end

  -- A queue with only its name known.
  local function new_queue(name)
    local at = n_queues + 1 -- as new_lane
    local q = queue_list[at] or { own = {} }
    q.name, q.key, q.settings, q.part, q.idle, q.dirty, q.touched = name, queue_key(name), false, false, false, false, false
    queues[name] = q
    queue_list[at], n_queues = q, at
    return q
  end

  local function lay_nothing(q)
    q.exists, q.next_grant, q.held, q.block, q.step, q.began, q.in_flight, q.waiting, q.asked = false, 0, 0, 0, 0, 0, 0, 0, 0
    q.cached, q.part, q.idle = '', false, false
  end

  local function delete_queue(q)
    call('DEL', q.key)
    call('ZREM', QUEUES, reversed(q.name))
    call('ZREM', IDLE, q.name)
  end

  local function unpack_queue(q, packed)
    local at, a
    q.next_grant, q.held, q.block, q.step, q.began, q.in_flight, q.waiting, q.asked, q.cached, at = struct.unpack(QUEUE, packed)
    q.exists, q.idle = true, q.in_flight <= 0 and q.waiting <= 0
    while at <= #packed do
      a = add_part(q, a)
      at = read_part(a, packed, at)
    end
  end

  -- Unpacks the record of a queue; nothing if there is none.
  local function lay_queue(q, packed)
    if not packed then
      lay_nothing(q)
      return q
    end
    unpack_queue(q, packed)
    if q.idle and queue_end(q) <= now then
      delete_queue(q)
      lay_nothing(q)
    end
    return q
  end

  function get_queue(name)
    local q = queues[name]
    if q then return q end
    q = new_queue(name)
    return lay_queue(q, call('GET', q.key))
  end

  -- Begins the lanes that were not read yet, of which there may be the name for the
  -- number, and adds their keys.
  local function begin_lanes(numbers, keys)
    for i = 1, #numbers do
      local name = numbers[i]
      local n = tonumber(name)
      if not lanes[n] then
        if n == name then name = decimal(n) end
        keys[#keys + 1] = new_lane(n, name).key
      end
    end
  end

  -- Begins the queues that were not read yet, and adds their keys.
  local function begin_queues(names, keys)
    for i = 1, #names do
      if not queues[names[i]] then keys[#keys + 1] = new_queue(names[i]).key end
    end
  end

  -- Reads the lanes and queues that were not read yet, and other keys of strings, all at
  -- once, each nil for none; returns the values of the other keys first.
  function read_all(numbers, names, keys)
    keys = keys or {}
    local at, of_lanes, of_queues = #keys, n_lanes, n_queues
    if numbers then begin_lanes(numbers, keys) end
    if names then begin_queues(names, keys) end
    if #keys == 0 then return keys end
    local found = call('MGET', unpack(keys))
    for i = of_lanes + 1, n_lanes do
      at = at + 1
      lay_lane(lane_list[i], found[at])
    end
    for i = of_queues + 1, n_queues do
      at = at + 1
      lay_queue(queue_list[i], found[at])
    end
    return found
  end

  -- The first part that is kept from a part on, false for none.
  local function kept_part(a)
    while a and not a.held and a.picks == 0 do a = a.next end
    return a
  end

  local function pack_queue(q)
    local a, packed = kept_part(q.part), nil
    if not a then
      return struct.pack(QUEUE, q.next_grant, q.held, q.block, q.step, q.began, q.in_flight, q.waiting, q.asked, #q.cached, q.cached)
    end
    packed = struct.pack(WITH_PART, q.next_grant, q.held, q.block, q.step, q.began, q.in_flight, q.waiting, q.asked, #q.cached,
      q.cached, part_values(a))
    a = kept_part(a.next)
    while a do
      packed, a = packed .. struct.pack(PART, part_values(a)), kept_part(a.next)
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
        add(w, 'gone', q.key)
        add(w, 'unnamed', reversed(q.name))
        if q.idle then add(w, 'busy', q.name) end
      end
      queues[q.name] = nil
      return
    end
    writes[#writes + 1], writes[#writes + 2] = q.key, pack_queue(q)
    if not q.exists then add(w, 'named', '0', reversed(q.name)) end
    if idle and gone < INF then add(w, 'idle', gone, q.name)
    elseif q.idle then add(w, 'busy', q.name) end
    q.exists, q.idle = true, idle
  end

  -- Names queues with new records; returns whether all of the names are new.
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
    for i = 1, n_queues do
      local q = queue_list[i]
      if left > 0 and queues[q.name] == q and new[reversed(q.name)] then left = left - recount(q, left) end
    end
    save_queues()
  end

  -- Writes the queues that were changed, and all other records.
  function save_queues()
    local w = {}
    for i = 1, n_queues do
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
if n_queues > KEPT then
  queues, queue_list = {}, {}
else
  for i = 1, n_queues do queues[queue_list[i].name] = nil end
end
n_queues, hints = 0, false
