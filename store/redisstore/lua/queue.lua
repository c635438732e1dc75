-- Queues: each one value, read once a script and written once at its end (SHAPE.md). A queue
-- with one lane is flat: the lane is in the value. With the second it becomes wide, until it
-- is empty.
local QUEUE, TROUBLE, PART, LANE = '>I6I6I6I2I4I4BBc0', '>I6I2I6I4B', '>Bc0BI7', '>I4'
local HAS_TROUBLE, IS_WIDE, HAS_LANE = 1, 2, 4
local HERE, ASIDE, PICKS = 8, 16, 32 -- of a part, behind where it stands: 0 to 5

local queues, list -- by name, and those of this call

function queue.begin() queues, list = {}, {} end
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
-- Redis has it (was, was_score); whether lanes of it were put aside (named.lua); how many
-- picks of its lanes there were, of 8; and of a wide queue how many lanes are in queue open
-- and queue wait.
local function add_part(q, pool_name)
  local a = {
    queue = q.name, q = q, pool = pool_name, stands = pool.NOWHERE, score = 0, was = pool.NOWHERE, was_score = 0, aside = false,
    picks = 0, opens = 0, waits = 0, moved = false, placed = true,
  }
  q.parts[#q.parts + 1] = a
  return a
end

function queue.part(q, pool_name)
  local parts = q.parts
  for i = 1, #parts do
    if parts[i].pool == pool_name then return parts[i] end
  end
  return add_part(q, pool_name)
end

local function new(name)
  local q = {
    name = name, exists = false, next_grant = 0, held = 0, version = -1, slot = 0, in_flight = 0, waiting = 0, pattern = '', block = 0,
    step = 0, began = 0, asked = 0, failed = '', wide = false, lane = false, lanes = false, parts = {}, settings = false,
    dirty = false, touched = false, idle = false, over = false,
  }
  queues[name], list[#list + 1] = q, q
  return q
end

local function read_parts(q, packed, at)
  local n, here = byte(packed, at), nil
  at = at + 1
  for _ = 1, n do
    local name, bits, score
    name, bits, score, at = parse(PART, packed, at)
    local a = add_part(q, name)
    a.stands, a.score, a.aside, a.picks = bits % HERE, score, bits % (2 * ASIDE) >= ASIDE, floor(bits / PICKS)
    a.was, a.was_score = a.stands, score
    if q.wide then a.opens, a.waits, at = parse('>I4I4', packed, at) end
    if bits % ASIDE >= HERE then here = name end
  end
  return at, here
end

local function unpack_queue(q, packed)
  local held, bits, at
  q.next_grant, held, q.version, q.slot, q.in_flight, q.waiting, bits, q.pattern, at = parse(QUEUE, packed)
  q.exists, q.held, q.wide, q.idle = true, until_(held), bits % 4 >= IS_WIDE, q.in_flight <= 0 and q.waiting <= 0
  if bits % 2 >= HAS_TROUBLE then
    local n
    q.block, q.step, q.began, q.asked, n, at = parse(TROUBLE, packed, at)
    q.failed, at = sub(packed, at, at + 4 * n - 1), at + 4 * n
  end
  local here
  at, here = read_parts(q, packed, at)
  if q.wide then
    q.lanes = {}
  elseif bits >= HAS_LANE then
    q.lane = lane.lay(q, parse(LANE, packed, at), here or '', packed, at + 4)
  end
end

-- Until when an empty queue is remembered.
function queue.ends(q) return max(q.next_grant, q.block) end

-- Lays out a queue. One that holds nothing, and whose gates have ended, is as one that is
-- not there; the next write deletes it.
local function lay(q, packed)
  if not packed then return q end
  unpack_queue(q, packed)
  if q.idle and queue.ends(q) <= now then
    q.next_grant, q.held, q.version, q.pattern, q.block, q.step, q.began, q.asked, q.failed = 0, 0, -1, '', 0, 0, 0, 0, ''
    q.parts, q.over = {}, true
  end
  return q
end

function queue.get(name)
  local q = queues[name]
  if q then return q end
  local packed = call('GET', key.queue(name))
  return lay(new(name), packed)
end

-- Reads the queues of a list that were not read yet, all at once.
function queue.read_all(names)
  local new_names, keys, met = {}, {}, {}
  for i = 1, #names do
    local name = names[i]
    if not queues[name] and not met[name] then
      met[name], new_names[#new_names + 1], keys[#keys + 1] = true, name, key.queue(name)
    end
  end
  if #keys == 0 then return end
  local found = call('MGET', unpack(keys))
  for i = 1, #keys do lay(new(new_names[i]), found[i]) end
end

local function pack_parts(q)
  local packed, n = '', 0
  for i = 1, #q.parts do
    local a = q.parts[i]
    local here = q.lane and q.lane.pool == a.pool
    if a.picks > 0 or a.aside or here or a.stands ~= pool.NOWHERE or a.opens + a.waits > 0 then
      packed = packed .. pack(PART, #a.pool, a.pool, a.stands + (here and HERE or 0) + (a.aside and ASIDE or 0) + a.picks * PICKS, a.score)
      if q.wide then packed = packed .. pack('>I4I4', a.opens, a.waits) end
      n = n + 1
    end
  end
  return string.char(n) .. packed
end

-- The value of a queue.
function queue.pack(q)
  local trouble = q.block > 0 or q.step > 0 or q.asked > 0 or q.failed ~= ''
  local bits = (trouble and HAS_TROUBLE or 0) + (q.wide and IS_WIDE or 0) + (q.lane and HAS_LANE or 0)
  local packed = pack(QUEUE, q.next_grant, packed_until(q.held), max(q.version, 0), q.slot, q.in_flight, q.waiting, bits, #q.pattern, q.pattern)
  if trouble then packed = packed .. pack(TROUBLE, q.block, q.step, q.began, q.asked, #q.failed / 4) .. q.failed end
  if q.lane then return packed .. pack_parts(q) .. pack(LANE, q.lane.n) .. lane.pack(q.lane) end
  return packed .. pack_parts(q)
end

-- Takes a queue out of those of this call: its record is gone.
function queue.forget(q) queues[q.name] = nil end
