-- New tasks: the lanes that they come to, and their entering, all of a call at
-- once.

-- The lanes that items name, by source and queue: their numbers, false = none.
local lane_numbers
-- The lanes with what enters them: l.enters.
local entered

-- Finds the lanes of the items, and reads them, their queues, and other keys of
-- strings, whose values it returns.
local function find_lanes(items, keys)
  local queues_of, numbers_of, all = {}, {}, {}
  for i = 1, #items do
    local uid, queue = items[i].gate.uid, items[i].queue
    local numbers, names = lane_numbers[uid], queues_of[uid]
    if not numbers then
      numbers, names = {}, {}
      lane_numbers[uid], queues_of[uid] = numbers, names
    end
    if numbers[queue] == nil then
      numbers[queue] = false
      names[#names + 1], all[#all + 1] = queue, queue
    end
  end
  for uid, names in pairs(queues_of) do
    for i, n in ipairs(call('ZMSCORE', lanes_key(uid), unpack(names))) do
      n = tonumber(n or nil)
      lane_numbers[uid][names[i]], numbers_of[#numbers_of + 1] = n, n
    end
  end
  return read_all(numbers_of, all, keys)
end

-- The lane of a source in a queue, made when it is the first task there.
local function lane_for(uid, item)
  local n = lane_numbers[uid][item.queue]
  if n then return lanes[n] or get_lane(n) end
  n = call('HINCRBY', SHARD, 'lane', 1)
  local slot, name = string.sub(item.id, 1, -28), decimal(n)
  call('ZADD', lanes_key(uid), name, item.queue)
  call('ZADD', queue_lanes_key(item.queue), name, name)
  local l = { n = n, name = name, uid = uid, queue = item.queue, slot = slot, pool = '', settled = false, fresh = true,
    open = false, wait = false, head = false, later = false, dirty = true, removed = false }
  lanes[n], lane_numbers[uid][item.queue] = l, n
  return l
end

-- The record of a task that was submitted just now, and waits. Go packs what only
-- it knows: all from the size on.
local new_record
do
  -- Version, state, flags, result, cancel; revision; and nothing up to the last lease.
  local NEVER_LEASED = '\0\0\0\1\0\0\0\0\0\0\0\0' .. NO_COUNTERS .. '\0\0\0\0\0\0' .. NO_DIGEST
  local ONE_SHOT, RECURRING = '\1\1\0\0\0' .. NEVER_LEASED, '\1\1\1\0\0' .. NEVER_LEASED
  local due, created, lane, packed -- those that the last one had
  function new_record(l, item)
    if item.due ~= due or now ~= created or l.n ~= lane then
      due, created, lane = item.due, now, l.n
      packed = struct.pack('>I6I6I4', due, created, lane)
    end
    return (item.recurring and RECURRING or ONE_SHOT) .. packed .. item.rest
  end
end

local enter
do
  -- The last score and its digits: it is often that of the next.
  local last, digits

  -- Notes a new task of the lane and its record; enter_all puts it into the lane.
  function enter(l, item)
    local e = l.enters
    if not e then
      e = { ids = {}, suffixes = {}, ready = {}, later = {} }
      l.enters = e
      entered[#entered + 1] = l
    end
    local rank, suffix, n = rank_of(item), suffix_of(item.id), #e.ids + 1
    e.ids[n], e.suffixes[n] = item.id, suffix
    local set, score = e.later, item.due * 32 + rank
    if item.due <= now then set, score = e.ready, rank * BAND + item.due end
    if score ~= last then last, digits = score, decimal(score) end
    n = #set
    set[n + 1], set[n + 2] = digits, suffix
    if score < (set.first or INF) then set.first = score end
    n = #writes
    writes[n + 1], writes[n + 2] = item.key, new_record(l, item)
  end
end

local enter_all
do
  -- What indexes still say of records of those ids that were forgotten, or lost.
  local function clear_traces(l, ids, suffixes)
    if l.fresh then return end
    if first_later(l) then
      local later = call('ZMSCORE', later_key(l.name), unpack(suffixes))
      for i, id in ipairs(ids) do
        if later[i] then drop_entry(l, id) end
      end
    end
    if not l.settled then return end
    count(l.uid, 'dead', -call('ZREM', dead_key(l.name), unpack(suffixes)))
    count(l.uid, 'canceled', -call('ZREM', canceled_key(l.name), unpack(suffixes)))
  end

  -- Counts entries of lane ready that stood there without a record.
  local function found_ready(l, q, n)
    if n == 0 then return end
    q.waiting, l.head = q.waiting - n, nil
    count(l.uid, 'ready', -n)
    tally('dropped', n)
  end

  local function enter_later(l, q, e)
    if not l.fresh then found_ready(l, q, call('ZREM', ready_key(l.name), unpack(e.suffixes))) end
    call('ZADD', later_key(l.name), unpack(e.later))
    if l.later ~= nil then l.later = min(l.later or INF, e.later.first) end
    count(l.uid, 'scheduled', #e.later / 2)
  end

  local function enter_ready(l, q, e)
    local n = #e.ready / 2
    if l.head ~= nil then l.head = min(l.head or INF, e.ready.first) end
    found_ready(l, q, n - call('ZADD', ready_key(l.name), unpack(e.ready)))
    count(l.uid, 'ready', n)
  end

  local function enter_lane(l, e)
    local q = get_queue(l.queue)
    clear_traces(l, e.ids, e.suffixes)
    if #e.later > 0 then enter_later(l, q, e) end
    if #e.ready > 0 then enter_ready(l, q, e) end
    q.waiting, q.dirty = q.waiting + #e.ids, true
    touch(l)
  end

  -- Lets the new tasks that were noted so far enter their lanes.
  function enter_all()
    for _, l in ipairs(entered) do
      enter_lane(l, l.enters)
      l.enters = nil
    end
    entered = {}
  end
end

-- at each call
lane_numbers, entered = {}, {}
