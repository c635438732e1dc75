-- The check of queues: a queue's value is what its lanes, its pools and its leases say, and it
-- stands where it is looked for. One that is not is made anew of its lanes.
local LATER, HEAD = lane.LATER, lane.HEAD

-- By queue, how many leases and orphans there are; read once a call.
local in_flight, orphans

-- Counts them for a queue; false if there are too many. A repair needs them.
local function count_leases(name, needed)
  if in_flight then return true end
  local counted = { [true] = {}, [false] = {} }
  local function add(_, _, its, orphan) counted[orphan][its] = (counted[orphan][its] or 0) + 1 end
  if check.each_lease(add, needed) then
    in_flight, orphans = counted[false], counted[true]
    return true
  end
  check.skipped('queue ' .. name, 'its tasks in flight: the shard has too many leases')
  return false
end

-- What the shard knows of a lane, as far as it can be read; nil where there is none.
local function lane_of(q, n)
  local ok, l = pcall(queue.lane, q, n)
  if not ok then return nil, 'the value of lane ' .. n .. ' is damaged' end
  if l and l.stored and call('GET', key.lane(l.name)) ~= pack(lane.FORMAT, #l.pool, l.pool, lane.packed(l)) .. lane.head(l) then
    return nil, 'the value of lane ' .. n .. ' is damaged'
  end
  return l
end

local function band_of(priority, rank)
  if rank >= 20 then return 10 end
  return 9 - min(max(priority + 4 - floor(rank / 2), 0), 9)
end

-- A lane with tasks stands in its queue by its first task, or nobody finds it; that of a deleted
-- source nowhere.
local function misplaced(l, first)
  local stands = l.open or l.wait
  if not first then return (stands or l.pool ~= '') and 'is empty, and stands in the queue' end
  if not stands or l.pool == '' then
    return (not source.get(l.n).deleted or stands or l.pool ~= '') and 'stands nowhere'
  end
  local rank = floor(first / BAND)
  if l.open then
    local band = floor(l.open / BAND)
    return (first >= LATER or band < band_of(9, rank) or band > band_of(0, rank)) and 'is open in a wrong band'
  end
  return first >= LATER and l.wait < floor((first - LATER) / 32) and 'waits for too short a time'
end

-- What is wrong with a lane in itself; nil for nothing.
local function lane_fault(l)
  local set, head, last, its = key.set(l.name), lane.all(l, HEAD + 1), nil, nil
  local n, first, later = call('ZCARD', set), call('ZRANGE', set, 0, 0, 'WITHSCORES'), nil
  later = n > 0 and call('ZRANGEBYSCORE', set, decimal(LATER), '+inf', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  if #head > HEAD or #head == 0 and n > 0 or #lane.head(l) ~= #head * lane.ENTRY then return 'has a wrong head' end
  if l.more ~= n or l.later ~= (later and tonumber(later) - LATER or 0) then return 'counts another number of tasks behind its head' end
  if n > 0 then head[#head + 1] = { score = tonumber(first[2]), suffix = first[1] } end
  for _, e in ipairs(head) do
    if last and (last > e.score or last == e.score and not before(its, e.suffix)) then return 'has its tasks in a wrong order' end
    last, its = e.score, e.suffix
  end
  return misplaced(l, head[1] and head[1].score) or nil
end

-- How many lanes of each pool are open and wait, as their values say; and what is wrong with
-- where they stand.
local function count_lane(q, l, opens, waits)
  local pool_name = l.pool
  if l.open then opens[pool_name] = (opens[pool_name] or 0) + 1 end
  if l.wait then waits[pool_name] = (waits[pool_name] or 0) + 1 end
  if not q.wide or pool_name == '' then return nil end
  local a = { pool = pool_name, queue = q.name }
  local open, wait = call('ZSCORE', key.queue_open(a), l.n), call('ZSCORE', key.queue_wait(a), l.n)
  if l.open and tonumber(open or nil) == l.open and not wait or l.wait and tonumber(wait or nil) == l.wait and not open then return nil end
  return 'does not stand where its value says'
end

-- What is wrong with the lanes; nil for nothing. And how many tasks they have.
local function lanes_fault(q, numbers, opens, waits)
  local size = 0
  if q.lane then
    numbers = { q.lane.n, unpack(numbers) }
  end
  local met = {}
  for _, n in ipairs(numbers) do
    if not met[n] then
      met[n] = true
      local name = text_of(n) .. ':' .. q.name
      local l, fault = lane_of(q, n)
      if not l and not fault and call('EXISTS', key.lane(name), key.set(name)) > 0 then fault = 'the value of lane ' .. n .. ' is lost' end
      if l and not q.wide and call('EXISTS', key.lane(name)) == 1 then fault = 'lane ' .. n .. ' has two values' end
      if not l and q.wide and not fault then
        local a = q.part
        while a do
          if call('ZSCORE', key.queue_open(a), n) or call('ZSCORE', key.queue_wait(a), n) then fault = 'the value of lane ' .. n .. ' is lost' end
          a = a.next
        end
      end
      local its = not fault and l and (lane_fault(l) or count_lane(q, l, opens, waits))
      if fault or its then return fault or 'lane ' .. n .. ' ' .. its end
      if l then size = size + lane.size(l) end
    end
  end
  return nil, size
end

local function part_fault(q, a, opens, waits)
  local open, wait = opens[a.pool] or 0, waits[a.pool] or 0
  local in_open, in_wait = call('ZSCORE', key.pool_open(a.pool), q.name), call('ZSCORE', key.pool_wait(a.pool), q.name)
  if q.wide and (a.opens ~= open or a.waits ~= wait or call('ZCARD', key.queue_open(a)) ~= open or call('ZCARD', key.queue_wait(a)) ~= wait) then
    return 'it counts other lanes than it has'
  end
  if not q.wide and call('EXISTS', key.queue_open(a), key.queue_wait(a)) > 0 then return 'it has sets of lanes, and one lane' end
  if (open + wait > 0) ~= (a.stands ~= pool.NOWHERE) or open == 0 and (a.stands == pool.OPEN or a.stands == pool.FULL) then
    return 'it stands at a wrong place'
  end
  if (a.stands == pool.OPEN) ~= (in_open and tonumber(in_open) == a.score or false) or in_open and a.stands ~= pool.OPEN
      or (a.stands == pool.WAIT) ~= (in_wait and tonumber(in_wait) == a.score or false) or in_wait and a.stands ~= pool.WAIT then
    return 'its pool does not have it where its value says'
  end
  if a.stands == pool.OPEN and floor(a.score / BAND) ~= min(floor(queue.first_open(q, a) / BAND), 9) then return 'it stands in a wrong band' end
  if a.stands ~= pool.NOWHERE and call('SISMEMBER', key.pools, a.pool) == 0 then return 'its pool is not listed' end
  if call('EXISTS', key.aside(a)) == 1 and (not a.aside or a.stands == pool.OPEN) then return 'lanes are aside that it does not know of' end
  return nil
end

local function parts_fault(q, pools, opens, waits)
  local known, a = {}, q.part
  while a do
    known[a.pool] = true
    local fault = part_fault(q, a, opens, waits)
    if fault then return fault end
    a = a.next
  end
  for pool_name in pairs(opens) do if not known[pool_name] then return 'it does not know a pool of its lanes' end end
  for pool_name in pairs(waits) do if not known[pool_name] then return 'it does not know a pool of its lanes' end end
  for _, pool_name in ipairs(pools) do
    local p = { pool = pool_name, queue = q.name }
    if not known[pool_name] and (call('ZSCORE', key.pool_open(pool_name), q.name) or call('ZSCORE', key.pool_wait(pool_name), q.name)
        or call('EXISTS', key.queue_open(p), key.queue_wait(p), key.aside(p)) > 0) then
      return 'a pool has it that it does not know'
    end
  end
  return nil
end

-- The settings and holds that the queue has are those that are filed, once it has their version.
local function settings_fault(q)
  if q.version ~= shard.settings_version() then return q.version > shard.settings_version() and 'its settings are newer than the rules' or nil end
  local pattern, held, dirty = q.pattern, q.held, q.dirty
  q.version, q.settings = -1, false
  rule.settings(q)
  local fault = (q.pattern ~= pattern or q.held ~= held) and 'it has other settings or holds than are filed' or nil
  if not fault then q.dirty = dirty end
  return fault
end

-- What is wrong with a queue that has a value; nil for nothing.
local function queue_fault(q, slot, numbers, pools, seen, waits_for_lock)
  local opens, waits = {}, {}
  local fault, size = lanes_fault(q, numbers, opens, waits)
  fault = fault or parts_fault(q, pools, opens, waits)
  if fault then return fault end
  if q.in_flight ~= seen or q.waiting ~= size + waits_for_lock then
    if not count_leases(q.name) then return settings_fault(q) end
    seen, waits_for_lock = in_flight[q.name] or 0, orphans[q.name] or 0
    if q.in_flight ~= seen then return 'it counts ' .. q.in_flight .. ' tasks in flight, there are ' .. seen end
    if q.waiting ~= size + waits_for_lock then return 'it counts ' .. q.waiting .. ' tasks that wait, there are ' .. size + waits_for_lock end
  end
  if q.waiting > 0 and q.slot ~= slot then return 'it has a wrong slot' end
  return settings_fault(q)
end

-- Takes the tasks of a lane into its set, and its value away.
local function scatter(q, n)
  local name, entries = text_of(n) .. ':' .. q.name, {}
  local ok, l = pcall(queue.lane, q, n)
  for _, e in ipairs(ok and l and lane.all(l, HEAD + 1) or {}) do entries[#entries + 1], entries[#entries + 2] = decimal(e.score), e.suffix end
  for i = 1, #entries, 2 do call('ZADD', key.set(name), entries[i], entries[i + 1]) end
  call('DEL', key.lane(name))
end

-- Takes the queue out of all that has it.
local function take_away(q, pools)
  local names, a = {}, q.part
  for _, pool_name in ipairs(pools) do names[pool_name] = true end
  while a do
    if a.stands > pool.WAIT then pool.note(q.name, a.pool, a.stands, pool.NOWHERE, 0) end
    names[a.pool], a = true, a.next
  end
  for pool_name in pairs(names) do
    local p = { pool = pool_name, queue = q.name }
    call('ZREM', key.pool_open(pool_name), q.name)
    call('ZREM', key.pool_wait(pool_name), q.name)
    call('DEL', key.queue_open(p), key.queue_wait(p), key.aside(p))
  end
end

-- Makes the queue anew of its lanes, and of the leases that it has.
local function rebuild(q, slot, numbers, pools)
  if q.lane then numbers = { q.lane.n, unpack(numbers) } end
  for _, n in ipairs(numbers) do scatter(q, n) end
  take_away(q, pools)
  q.lane, q.lanes, q.wide, q.part, q.waiting, q.slot = false, false, false, false, 0, slot
  local met = {}
  for _, n in ipairs(numbers) do
    if not met[n] and call('EXISTS', key.set(text_of(n) .. ':' .. q.name)) == 1 then
      local l = queue.make_lane(q, n)
      if q.exists then lane.find_set(l) end
      lane.load(l, 1)
      lane.touch(l)
    end
    met[n] = true
  end
  count_leases(q.name, true)
  q.in_flight, q.waiting = in_flight[q.name] or 0, q.waiting + (orphans[q.name] or 0)
  -- What was lost with its value is when it was asked last.
  if not q.exists and q.in_flight + q.waiting > 0 then q.next_grant = now_end + gate.delay(q) end
  q.dirty, q.touched = true, true
  if q.in_flight + q.waiting == 0 then call('ZREM', key.idle, q.name) end
end

-- A queue is listed while it has a value, and as idle while it is empty: a sweep then ends it.
local function check_lists(q, name)
  local listed, at = call('ZSCORE', key.queues, queue.reversed(name)), tonumber(call('ZSCORE', key.idle, name) or nil)
  local ends = q.exists and q.idle and (q.over and at or queue.ends(q)) or nil
  if q.over and not at then
    if check.found('list', name, 'it is over, and no sweep ends it') then q.dirty = true end
  elseif at ~= ends and check.found('list', name, ends and 'it is empty, and not listed as idle to its end' or 'it is listed as idle, and is not') then
    if ends then call('ZADD', key.idle, decimal(ends), name) else call('ZREM', key.idle, name) end
  end
  if (listed and true or false) ~= q.exists and check.found('list', name, q.exists and 'the list of queues does not have it' or 'the list of queues has it, and it has nothing') then
    if q.exists then call('ZADD', key.queues, 0, queue.reversed(name)) else call('ZREM', key.queues, queue.reversed(name)) end
  end
end

-- The entries of heads are of tasks that wait there.
local function check_heads(q, slot, numbers)
  if q.lane then numbers = { q.lane.n } elseif not q.wide then return end
  for _, n in ipairs(numbers) do
    local l, ids = queue.lane(q, n), {}
    for i, e in ipairs(l and lane.all(l, HEAD + 1) or {}) do ids[i] = slot .. '-' .. e.suffix end
    check.each_record(ids, function(id, raw)
      if check.waits_in(raw, n, q.name) then return end
      if check.found('entry', id, 'lane ' .. l.name .. ' has it, and it does not wait there') then check.take_out(l, record.suffix(id), raw) end
    end)
  end
end

local function check_queue(name, slot, numbers, pools, seen, waits_for_lock)
  local raw, fault = call('GET', key.queue(name)), nil
  local ok, q = pcall(queue.get, name)
  if ok and q.exists and not q.over and queue.pack(q) ~= raw then
    queue.forget(q)
    ok = false
  end
  local damaged = not ok
  if damaged then
    q, fault = queue.lost(name), 'its value is damaged'
  elseif not q.exists or q.over then
    fault = parts_fault({ name = name, part = false }, pools, {}, {})
    for _, n in ipairs(numbers) do
      if call('EXISTS', key.lane(text_of(n) .. ':' .. name), key.set(text_of(n) .. ':' .. name)) > 0 then fault = 'its value is lost, and it has tasks' end
    end
    if not fault and seen + waits_for_lock > 0 and count_leases(name) then
      if (in_flight[name] or 0) + (orphans[name] or 0) > 0 then fault = 'its value is lost, and it has leases' end
    end
  else
    fault = queue_fault(q, slot, numbers, pools, seen, waits_for_lock)
  end
  if fault and check.found('queue', name, fault) then
    -- Lanes of a wide queue whose value was lost have values of their own.
    if not q.exists then
      q.wide, q.lanes = true, {}
      if damaged then call('DEL', key.queue(name)) end
    end
    rebuild(q, slot, numbers, pools)
    finish(true)
    q = queue.get(name)
  end
  if fault and not q.exists then return end
  check_lists(q, name)
  if not q.exists or q.over then return end
  check_heads(q, slot, numbers)
  for _, n in ipairs(q.lane and { q.lane.n } or numbers) do
    local l = queue.lane(q, n)
    if l and not lane.is_empty(l) then check.lists(n, name) end
  end
end

-- Checks queues.
--
-- ARGV     whether to repair (0, 1); how many pools there are, and they; per queue: name, slot, how
--          many leases and orphans of it were seen in the lease index, how many sources may have
--          lanes there, and their numbers
-- Returns  findings
-- Cost     O(log n) a lane; at most 100 queues with 100 lanes, or one with at most 5,000; where
--          its value counts other leases than were seen, a read of the lease index
function scripts.checkqueues()
  check.begin(ARGV[1])
  in_flight, orphans = nil, nil
  local pools, at = {}, 3 + tonumber(ARGV[2])
  for i = 3, at - 1 do pools[#pools + 1] = ARGV[i] end
  while at <= #ARGV do
    local name, slot, seen, waits_for_lock, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local numbers = {}
    for i = 1, n do numbers[i] = tonumber(ARGV[at + 4 + i]) end
    at = at + 5 + n
    check_queue(name, slot, numbers, pools, seen, waits_for_lock)
  end
  return check.finish()
end
