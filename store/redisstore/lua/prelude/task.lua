-- Tasks among the sets of their lane, and how they are handed to Go.
local touched, touched_list

local function touch(l)
  if not touched[l.n] then
    touched[l.n] = true
    touched_list[#touched_list + 1] = l
  end
end

-- One-shot tasks that wait or are leased, which a source's limit counts.
local function outstanding(uid, r, n)
  if not r.recurring then tally_source(uid, 'out', n) end
end

-- Where a task stands in its lane: 'ready', 'later', 'leased', 'orphan' or nil.
local function place_of(l, suffix)
  local score = tonumber(call('ZSCORE', later_key(l.name), suffix) or nil)
  if score then return score >= ORPHAN_FROM and 'orphan' or score >= LEASED_FROM and 'leased' or 'later' end
  return call('ZSCORE', ready_key(l.name), suffix) and 'ready' or nil
end

-- Whether a waiting task is an orphan: it stands in the lease index until its
-- lock has ended.
local function is_orphan(l, id) return place_of(l, suffix_of(id)) == 'orphan' end

-- Leases that end: locks, lease index, lanes and what their collectors hold, each
-- written once at the end. by_lane has what leaves lane later and how many leases
-- that are; back is what waits in lane later again, in the place of its lease.
local ended

-- Ends a lease in all indexes; what becomes of the record, and of the queue's
-- leases in flight, is the caller's. The queue is placed; the lane changes when
-- the task waits again.
local function leave_leased(l, id, collector)
  local n = #ended.locks + 1
  ended.locks[n], ended.members[n] = lock_key(id), lease_member(l, id)
  local held, left = ended.held[collector], ended.by_lane[l.n]
  if not held then
    held = {}
    ended.held[collector] = held
  end
  if not left then
    left = { lane = l }
    ended.by_lane[l.n] = left
    get_queue(l.queue).touched = true
  end
  held[#held + 1], left[#left + 1] = id, suffix_of(id)
end

local function flush_ended()
  if #ended.locks == 0 then return end
  call('DEL', unpack(ended.locks))
  call('ZREM', LEASES, unpack(ended.members))
  for collector, ids in pairs(ended.held) do call('HDEL', held_key(collector), unpack(ids)) end
  for _, left in pairs(ended.by_lane) do
    local gone = left
    if next(ended.back) then
      gone = {}
      for _, suffix in ipairs(left) do
        if not ended.back[suffix] then gone[#gone + 1] = suffix end
      end
    end
    if #gone > 0 then call('ZREM', later_key(left.lane.name), unpack(gone)) end
    count(left.lane.uid, 'leased', -#left)
  end
end

-- Puts a waiting task that stands nowhere into its lane.
local function enter_waiting(l, id, r)
  local rank, q = rank_of(r), get_queue(l.queue)
  if r.due <= now then
    call('ZADD', ready_key(l.name), rank * BAND + r.due, suffix_of(id))
    count(l.uid, 'ready', 1)
    l.head = nil
  else
    call('ZADD', later_key(l.name), r.due * 32 + rank, suffix_of(id))
    l.later = nil
    if ended.by_lane[l.n] then ended.back[suffix_of(id)] = true end
    count(l.uid, 'scheduled', 1)
  end
  q.waiting, q.dirty = q.waiting + 1, true
  touch(l)
end

-- Takes a task out of its lane, where it stands as place_of says.
local function leave_lane(l, id, place)
  local q = get_queue(l.queue)
  if place == 'ready' then
    call('ZREM', ready_key(l.name), suffix_of(id))
    l.head = nil
  else
    call('ZREM', later_key(l.name), suffix_of(id))
    l.later = nil
  end
  if place == 'leased' or place == 'orphan' then call('ZREM', LEASES, lease_member(l, id)) end
  if place == 'leased' then
    q.in_flight = q.in_flight - 1
    count(l.uid, 'leased', -1)
  else
    q.waiting = q.waiting - 1
    count(l.uid, place == 'later' and 'scheduled' or 'ready', -1)
  end
  q.dirty, l.removed = true, true
  touch(l)
end

local function leave_waiting(l, id) leave_lane(l, id, place_of(l, suffix_of(id)) or 'ready') end

-- An index entry whose record is missing no longer counts anywhere.
local function drop_entry(l, id)
  local place = place_of(l, suffix_of(id))
  if not place then return end
  leave_lane(l, id, place)
  tally('dropped', 1)
end

local function settled_key(l, state)
  if state == DEAD then return dead_key(l.name) end
  return canceled_key(l.name)
end

-- Writes and files a settled task. remember is in ms, 0 = with its source. The
-- sets of dead and canceled tasks are scored by when they are forgotten.
local function enter_settled(l, id, r, remember)
  count(l.uid, STATE_FIELD[r.state], 1)
  local gone = remember > 0 and now + remember or INF
  if remember == 0 then
    write_record(id, r)
  else
    call('SET', task_key(id), pack_record(r), 'PXAT', decimal(gone - 1))
    if r.details then expire_at(details_key(id), gone) end
    if r.history then expire_at(history_key(id), gone) end
  end
  if r.state == DONE and remember > 0 then return end
  local set = r.state == DONE and canceled_key(l.name) or settled_key(l, r.state)
  call('ZADD', set, gone, suffix_of(id))
  if not l.settled then
    l.settled, l.dirty = true, true
  end
  if remember > 0 then call('ZADD', FORGET, 'LT', gone, set) end
end

-- Takes a settled task out of what is to be forgotten.
local function leave_settled(l, id, r)
  count(l.uid, STATE_FIELD[r.state], -1)
  if l.settled then
    call('ZREM', dead_key(l.name), suffix_of(id))
    call('ZREM', canceled_key(l.name), suffix_of(id))
  end
  if r.details then call('PERSIST', details_key(id)) end
  if r.history then call('PERSIST', history_key(id)) end
end

-- Tasks of one lane for Go: queue, source uid, source id, pool, version, and of
-- each task four values: id, record, details, history.
local function begin_tasks(l)
  local s = get_source(l.uid)
  return { l.queue, l.uid, s.id, s.pool, decimal(s.version) }
end

-- The details that a holder gets.
local function holder_details(id)
  local f = call('HMGET', details_key(id), 'c', 'm')
  return { 'c', f[1] or '', 'm', f[2] or '' }
end

-- A task for Go, with what is asked for of its details: none, what a holder
-- gets, or all.
local NO_DETAILS, HANDED_OUT, ALL_DETAILS = 0, 1, 2

local function task_reply(id, raw, r, with)
  local out = begin_tasks(get_lane(r.lane))
  out[6], out[7], out[8], out[9] = id, raw, false, false
  if r.details and with == HANDED_OUT then out[8] = holder_details(id)
  elseif r.details and with == ALL_DETAILS then out[8] = call('HGETALL', details_key(id)) end
  if r.history and with == ALL_DETAILS then out[9] = call('LRANGE', history_key(id), 0, -1) end
  return out
end

-- at each call
touched, touched_list = {}, {}
ended = { locks = {}, members = {}, held = {}, by_lane = {}, back = {} }
