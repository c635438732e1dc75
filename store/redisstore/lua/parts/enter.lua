-- New tasks: the lanes that they come to, and their entering, all of a call at
-- once.

-- The lanes that series name, by source and queue: their numbers, false = none. A
-- series is of tasks that were submitted one after the other, and differ in their
-- ids and bodies only (submit.lua).
local lane_numbers
-- Those made by this call, by source: number and queue, flat.
local new_lanes
-- The lanes that tasks enter: what ZADD takes of those for lane ready and for lane later,
-- l.comes and l.comes_later, false for none, and the lowest score of each.
local entered

-- Finds the lanes of the series, and reads them, their queues, and other keys of
-- strings, whose values it returns.
local function find_lanes(all_series, n, keys)
  local queues_of, numbers_of, all = {}, {}, {}
  for i = 1, n do
    local series = all_series[i]
    local uid, queue = series.source.uid, series.queue
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
    local found = call('ZMSCORE', lanes_key(uid), unpack(names))
    for i = 1, #found do
      local n = found[i]
      if n then lane_numbers[uid][names[i]], numbers_of[#numbers_of + 1] = tonumber(n), n end
    end
  end
  return read_all(numbers_of, all, keys)
end

-- The lane of a series, made when it has the first tasks there; read_shard has read
-- the last number.
local function lane_of(series)
  local uid, queue = series.source.uid, series.queue
  local n = lane_numbers[uid][queue]
  if n then return lanes[n] or get_lane(n) end
  tally('lane', 1)
  n = counts.lane
  local name, made = decimal(n), new_lanes[uid] or {}
  new_lanes[uid], made[#made + 1], made[#made + 2] = made, name, queue
  call('ZADD', queue_lanes_key(queue), name, name)
  local l = new_lane(n, name)
  l.uid, l.queue, l.slot, l.pool, l.settled, l.orphaned, l.fresh = uid, queue, series.slot, '', false, false, true
  l.open, l.wait, l.rank, l.later, l.dirty = false, false, false, false, true
  lane_numbers[uid][queue] = n
  return l
end

-- What the records of new tasks of a series begin with: tasks that wait. Go packs
-- what follows, all from the size on.
local begin_record
do
  -- Version, state, flags, result, cancel; revision, cycle.
  local ONE_SHOT, RECURRING = '\1\1\0\0\0\0\0\0\1\0\0\0\0', '\1\1\1\0\0\0\0\0\1\0\0\0\0'
  -- Attempts, counters, when it was settled, and the last lease.
  local NEVER_LEASED = '\0\0\0\0' .. NO_COUNTERS .. '\0\0\0\0\0\0' .. NO_DIGEST
  local FORMAT = '>c13I4c36I6I6'
  function begin_record(series, l)
    return struct.pack(FORMAT, series.recurring and RECURRING or ONE_SHOT, l.n, NEVER_LEASED, series.due, now)
  end
end

local enter
do
  -- Makes what the new tasks of a series have in common.
  local function begin_series(series)
    local l, rank = lane_of(series), rank_of(series)
    series.lane, series.head, series.ready = l, begin_record(series, l), series.due <= now
    series.score = series.ready and rank * BAND + series.due or LATER_FROM + series.due * 32 + rank
    series.digits = decimal(series.score)
    if series.ready and l.comes then l.first = min(l.first, series.score) end
    if not series.ready and l.comes_later then l.first_later = min(l.first_later, series.score) end
  end

  -- Begins what enters the lane of a series.
  local function begin_set(series, suffix)
    local l, set = series.lane, { series.digits, suffix }
    if not l.comes and not l.comes_later then entered[#entered + 1] = l end
    if series.ready then l.comes, l.first = set, series.score else l.comes_later, l.first_later = set, series.score end
  end

  -- Notes a new task and its record; enter_all puts it into its lane.
  function enter(series, key, suffix, rest)
    if not series.lane then begin_series(series) end
    local l, set, n = series.lane, nil, nil
    if series.ready then set = l.comes else set = l.comes_later end
    if set then
      n = #set
      set[n + 1], set[n + 2] = series.digits, suffix
    else
      begin_set(series, suffix)
    end
    n = #writes
    writes[n + 1], writes[n + 2] = key, series.head .. rest
  end
end

local enter_all
do
  -- The tasks that enter a lane.
  local function suffixes_of(l)
    local suffixes = {}
    for i = 2, l.comes and #l.comes or 0, 2 do suffixes[#suffixes + 1] = l.comes[i] end
    for i = 2, l.comes_later and #l.comes_later or 0, 2 do suffixes[#suffixes + 1] = l.comes_later[i] end
    return suffixes
  end

  -- What sets of settled tasks still say of records that were forgotten, or lost.
  local function clear_settled(l)
    if l.fresh or not l.settled then return end
    local suffixes = suffixes_of(l)
    count(l.uid, 'dead', -call('ZREM', dead_key(l.name), unpack(suffixes)))
    count(l.uid, 'canceled', -call('ZREM', canceled_key(l.name), unpack(suffixes)))
  end

  -- Enters tasks of which the lane's set had some, whose records were lost: of these how
  -- many stood elsewhere in it, and enter now.
  local function enter_anew(l, key, set)
    local suffixes, moved = {}, 0
    for i = 2, #set, 2 do suffixes[#suffixes + 1] = set[i] end
    for i, score in ipairs(call('ZMSCORE', key, unpack(suffixes))) do
      if tonumber(score) ~= tonumber(set[2 * i - 1]) then
        drop_entry(l, id_of(l, suffixes[i]))
        call('ZADD', key, set[2 * i - 1], suffixes[i])
        moved = moved + 1
      end
    end
    return moved
  end

  -- Enters tasks of lane ready or of lane later.
  local function enter_set(l, q, set, state)
    local key, n = tasks_key(l.name), #set / 2
    local came = call('ZADD', key, 'NX', unpack(set))
    if came < n then
      came = came + enter_anew(l, key, set)
      tally('dropped', n - came)
    end
    q.waiting = q.waiting + came
    count(l.uid, state, came)
  end

  local function enter_lane(l)
    local q = get_queue(l.queue)
    clear_settled(l)
    if l.comes_later then
      front.came(l, 'later', l.first_later - LATER_FROM)
      enter_set(l, q, l.comes_later, 'scheduled')
    end
    if l.comes then
      front.came(l, 'rank', floor(l.first / BAND))
      enter_set(l, q, l.comes, 'ready')
    end
    l.comes, l.comes_later, q.dirty = false, false, true
    touch(l)
  end

  -- Lets the new tasks that were noted so far enter their lanes.
  function enter_all()
    for uid, made in pairs(new_lanes) do call_for_all('ZADD', lanes_key(uid), made) end
    new_lanes = {}
    for _, l in ipairs(entered) do
      enter_lane(l)
    end
    entered = {}
  end
end

-- at each call
lane_numbers, new_lanes, entered = {}, {}, {}
