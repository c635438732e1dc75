-- Queues: each one value, read once a script and written once at its end (SHAPE.md). A queue
-- with one lane is flat: the lane is in the value. With the second it becomes wide, until it
-- is empty.
local QUEUE, TROUBLE, PART, LANE = '>I6I6I6I2I4I4BBc0', '>I6I2I6I4B', '>Bc0BI7', '>I4BI7I7I4'
queue.AT_BITS, queue.IS_FLAT = 29, 8 -- of any queue's value
local AT_BITS, IS_FLAT = queue.AT_BITS, queue.IS_FLAT
local HAS_TROUBLE, IS_WIDE, HAS_LANE = 1, 2, 4
queue.HERE, queue.PICKS = 8, 32
local HERE, ASIDE, PICKS = 8, 16, 32 -- of a part, behind where it stands: 0 to 5

-- By name; those of this call; values that are read, but not laid out; and whether values
-- were written as such, which Redis does not have yet.
local queues, list, known, written

function queue.begin() queues, list, known, written = {}, {}, {}, false end
function queue.all() return list end

-- The labels of a name in reverse order: names that end alike stand together.
function queue.reversed(name)
  local labels, from = {}, 1
  while true do
    local dot = find(name, '.', from, true)
    if not dot then break end
    labels[#labels + 1], from = sub(name, from, dot - 1), dot + 1
  end
  if from == 1 then return name end
  local reversed = sub(name, from)
  for i = #labels, 1, -1 do reversed = reversed .. '.' .. labels[i] end
  return reversed
end

-- The queue in one pool: where it stands there (pool.lua), with its score or instant; as
-- Redis has it (was); how many picks of its lanes there were, of 8; whether lanes of it were
-- put aside (named.lua), and whether it has to be placed again; and of a wide
-- queue how many lanes are in queue open and queue wait.
local PART_DEFAULTS = { aside = false, opens = 0, waits = 0, moved = false, changed = false, next = false }
PART_DEFAULTS.__index = PART_DEFAULTS
local function new_part(q, pool_name, stands, score, picks)
  return setmetatable({ queue = q.name, q = q, pool = pool_name, stands = stands, score = score, was = stands, picks = picks },
    PART_DEFAULTS)
end

-- The parts of a queue are a list: q.part, and the next of each. Nearly all have one.
function queue.part(q, pool_name)
  local a, last = q.part, nil
  while a do
    if a.pool == pool_name then return a end
    a, last = a.next, a
  end
  a = new_part(q, pool_name, pool.NOWHERE, 0, 0)
  if last then last.next = a else q.part = a end
  return a
end

-- What most queues have not: a table of few fields is made faster than one of many.
local DEFAULTS = {
  exists = false, over = false, idle = false, dirty = false, touched = false, settings = false, wide = false, lanes = false, lane = false,
  part = false, next_grant = 0, held = 0, version = -1, slot = '0', in_flight = 0, waiting = 0, pattern = '', block = 0, step = 0,
  began = 0, asked = 0, failed = '',
}
DEFAULTS.__index = DEFAULTS

local function add(q)
  queues[q.name], list[#list + 1] = q, q
  return q
end

-- A flat queue with a lane in one pool, without trouble, is packed in one format.
queue.FLAT = '>I6I6I6I2I4I4BBI7I4BI7I7I4Bc0Bc0Bc0'
-- Its bytes of the head; and of one with a head the slot, the source, and the first task.
queue.AT_HEAD, queue.AT_SLOT = 61, 19
queue.FIRST = '>I2xxxxxxxxxxxxxxxxxI4xxxxxxxxxxxxxxxxxxxxxxxxxxxc26'
local FLAT = queue.FLAT

local function lay_flat(name, packed)
  local next_grant, held, version, slot, in_flight, waiting, _, bits, score, n, stands, at, later, more, head, pattern, pool_name =
    parse(FLAT, packed)
  local q = setmetatable({
    name = name, exists = true, next_grant = next_grant, held = until_(held), version = version, slot = text_of(slot), in_flight = in_flight,
    waiting = waiting, pattern = pattern, lane = false, part = false, settings = false, dirty = false, touched = false,
    idle = in_flight <= 0 and waiting <= 0,
  }, DEFAULTS)
  q.part = new_part(q, pool_name, bits % HERE, score, floor(bits / PICKS))
  q.lane = lane.lay(q, n, bits % ASIDE >= HERE and pool_name or '', stands, at, later, more, head)
  return q
end

local function pack_flat(q, l, a)
  local head = lane.head(l)
  return pack(FLAT, q.next_grant, packed_until(q.held), max(q.version, 0), q.slot, max(q.in_flight, 0), max(q.waiting, 0), IS_FLAT,
    a.stands + (l.pool == a.pool and HERE or 0) + a.picks * PICKS, a.score, l.n,
    lane.packed(l, #head, head, #q.pattern, q.pattern, #a.pool, a.pool))
end

local function read_parts(q, packed, at)
  local n, here, last = byte(packed, at), nil, nil
  at = at + 1
  for _ = 1, n do
    local name, bits, score
    name, bits, score, at = parse(PART, packed, at)
    local a = new_part(q, name, bits % HERE, score, floor(bits / PICKS))
    if last then last.next = a else q.part = a end
    last = a
    if bits % (2 * ASIDE) >= ASIDE then a.aside = true end
    if q.wide then a.opens, a.waits, at = parse('>I4I4', packed, at) end
    if bits % ASIDE >= HERE then here = name end
  end
  return at, here
end

local function lay_other(name, packed)
  local next_grant, held, version, slot, in_flight, waiting, bits, pattern, at = parse(QUEUE, packed)
  local q = setmetatable({
    name = name, exists = true, next_grant = next_grant, held = until_(held), version = version, slot = text_of(slot), in_flight = in_flight,
    waiting = waiting, pattern = pattern, idle = in_flight <= 0 and waiting <= 0, wide = bits % 4 >= IS_WIDE,
  }, DEFAULTS)
  if bits % 2 >= HAS_TROUBLE then
    local n
    q.block, q.step, q.began, q.asked, n, at = parse(TROUBLE, packed, at)
    q.failed, at = sub(packed, at, at + 4 * n - 1), at + 4 * n
  end
  local here
  at, here = read_parts(q, packed, at)
  if q.wide then
    q.lanes = {}
  elseif bits % 8 >= HAS_LANE then
    local n, stands, score, later, more, from = parse(LANE, packed, at)
    q.lane = lane.lay(q, n, here or '', stands, score, later, more, sub(packed, from))
  end
  return q
end

-- Until when an empty queue is remembered.
function queue.ends(q) return max(q.next_grant, q.block) end

-- Lays out a queue. One that holds nothing, and whose gates have ended, is as one that is
-- not there; the next write deletes it.
local function lay(name, packed)
  if not packed then return add(setmetatable({ name = name }, DEFAULTS)) end
  local q = byte(packed, AT_BITS) == IS_FLAT and lay_flat(name, packed) or lay_other(name, packed)
  if q.idle and queue.ends(q) <= now then
    q.next_grant, q.held, q.version, q.pattern, q.block, q.step, q.began, q.asked, q.failed = 0, 0, -1, '', 0, 0, 0, 0, ''
    q.part, q.over = false, true
  end
  return add(q)
end

local function flush_written()
  if written then
    written = false
    flush_writes()
  end
end

function queue.get(name)
  local q = queues[name]
  if q then return q end
  local packed = known[name]
  if packed then
    known[name] = nil
  else
    flush_written()
    packed = call('GET', key.queue(name))
  end
  return lay(name, packed)
end

-- Values of queues of a list, false for each that is laid out, and their keys. What offer
-- gives back need not be read again.
function queue.values(names)
  flush_written()
  local keys, prefix, values, asked, places = {}, key.queue(''), {}, {}, {}
  for i = 1, #names do
    local name, k = names[i], #asked + 1
    keys[i], values[i] = prefix .. name, known[name] or false
    if not values[i] and not queues[name] then asked[k], places[k] = keys[i], i end
  end
  local found = asked[1] and call('MGET', unpack(asked))
  for k = 1, #asked do values[places[k]] = found[k] end
  return values, keys
end
function queue.offer(name, packed) known[name] = packed end

-- Writes the value of a queue that is not laid out.
function queue.write(name, at, packed)
  written = true
  if known[name] then known[name] = nil end
  local n = #writes
  writes[n + 1], writes[n + 2] = at, packed
end

-- Reads the queues of a list that were not read yet, all at once.
function queue.read_all(names)
  local new_names, keys, met = {}, {}, {}
  for i = 1, #names do
    local name = names[i]
    if known[name] then
      queue.get(name)
    elseif not queues[name] and not met[name] then
      met[name], new_names[#new_names + 1], keys[#keys + 1] = true, name, key.queue(name)
    end
  end
  if #keys == 0 then return end
  flush_written()
  local found = call('MGET', unpack(keys))
  for i = 1, #keys do lay(new_names[i], found[i]) end
end

local function pack_parts(q)
  local packed, n, a = '', 0, q.part
  while a do
    local here = q.lane and q.lane.pool == a.pool
    if a.picks > 0 or a.aside or here or a.stands ~= pool.NOWHERE or a.opens + a.waits > 0 then
      packed = packed .. pack(PART, #a.pool, a.pool, a.stands + (here and HERE or 0) + (a.aside and ASIDE or 0) + a.picks * PICKS, a.score)
      if q.wide then packed = packed .. pack('>I4I4', max(a.opens, 0), max(a.waits, 0)) end
      n = n + 1
    end
    a = a.next
  end
  return string.char(n) .. packed
end

-- The value of a queue.
function queue.pack(q)
  local trouble = q.block > 0 or q.step > 0 or q.asked > 0 or q.failed ~= ''
  local l, a = q.lane, q.part
  if l and a and not trouble and not a.next and not a.aside then return pack_flat(q, l, a) end
  local bits = (trouble and HAS_TROUBLE or 0) + (q.wide and IS_WIDE or 0) + (l and HAS_LANE or 0)
  local packed = pack(QUEUE, q.next_grant, packed_until(q.held), max(q.version, 0), q.slot, max(q.in_flight, 0), max(q.waiting, 0), bits, #q.pattern, q.pattern)
  if trouble then packed = packed .. pack(TROUBLE, q.block, q.step, q.began, q.asked, #q.failed / 4) .. q.failed end
  if l then return packed .. pack_parts(q) .. pack(LANE, l.n, lane.packed(l)) .. lane.head(l) end
  return packed .. pack_parts(q)
end

-- Takes a queue out of those of this call: its record is gone.
function queue.forget(q) queues[q.name] = nil end

-- Begins a queue anew whose value cannot be read.
function queue.lost(name)
  known[name] = nil
  return lay(name, false)
end
