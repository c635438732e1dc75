-- Tasks among the sets of their lane, and how they are handed to Go.
local touched, touched_list = {}, {}

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
  local score = tonumber(call('ZSCORE', later_key(l.n), suffix) or nil)
  if score then return score >= ORPHAN_FROM and 'orphan' or score >= LEASED_FROM and 'leased' or 'later' end
  return call('ZSCORE', ready_key(l.n), suffix) and 'ready' or nil
end

-- Whether a waiting task is an orphan: it stands in the lease index until its
-- lock has ended.
local function is_orphan(l, id) return place_of(l, suffix_of(id)) == 'orphan' end

-- Puts a waiting task that stands nowhere into its lane.
local function enter_waiting(l, id, r)
  local rank, q = rank_of(r), get_queue(l.queue)
  if r.due <= now then
    call('ZADD', ready_key(l.n), rank * BAND + r.due, suffix_of(id))
    count(l.uid, 'ready', 1)
    l.head = nil
  else
    call('ZADD', later_key(l.n), r.due * 32 + rank, suffix_of(id))
    count(l.uid, 'scheduled', 1)
  end
  q.waiting, q.dirty = q.waiting + 1, true
  touch(l)
end

-- Takes a task out of its lane, where it stands as place_of says.
local function leave_lane(l, id, place)
  local q = get_queue(l.queue)
  if place == 'ready' then
    call('ZREM', ready_key(l.n), suffix_of(id))
    l.head = nil
  else
    call('ZREM', later_key(l.n), suffix_of(id))
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

-- Leases that end: locks, lease index and what their collectors hold, each
-- written once at the end.
local ended = { locks = {}, members = {}, held = {} }

-- Ends a lease in all indexes; what becomes of the record, and of the queue's
-- leases in flight, is the caller's.
local function leave_leased(l, id, r)
  local collector = holder_of(r)
  ended.locks[#ended.locks + 1] = lock_key(id)
  ended.members[#ended.members + 1] = lease_member(l, id)
  ended.held[collector] = ended.held[collector] or {}
  table.insert(ended.held[collector], id)
  call('ZREM', later_key(l.n), suffix_of(id))
  count(l.uid, 'leased', -1)
  touch(l)
end

local function flush_ended()
  if #ended.locks == 0 then return end
  call('DEL', unpack(ended.locks))
  call('ZREM', LEASES, unpack(ended.members))
  for collector, ids in pairs(ended.held) do call('HDEL', held_key(collector), unpack(ids)) end
end

local function settled_key(l, state)
  if state == DEAD then return dead_key(l.n) end
  return canceled_key(l.n)
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
  local set = r.state == DONE and canceled_key(l.n) or settled_key(l, r.state)
  call('ZADD', set, gone, suffix_of(id))
  if not l.settled then
    call('HSET', lane_key(l.n), 'settled', '1')
    l.settled = true
  end
  if remember > 0 then call('ZADD', FORGET, 'LT', gone, set) end
end

-- Takes a settled task out of what is to be forgotten.
local function leave_settled(l, id, r)
  count(l.uid, STATE_FIELD[r.state], -1)
  if l.settled then
    call('ZREM', dead_key(l.n), suffix_of(id))
    call('ZREM', canceled_key(l.n), suffix_of(id))
  end
  if r.details then call('PERSIST', details_key(id)) end
  if r.history then call('PERSIST', history_key(id)) end
end

-- A task for Go: id, record, queue, source uid, source id, pool, version, and of
-- its details what is asked for: none, what a holder gets, or all.
local NO_DETAILS, HANDED_OUT, ALL_DETAILS = 0, 1, 2

local function task_reply(id, raw, r, with)
  local l = get_lane(r.lane)
  local s = get_source(l.uid)
  local details, history = false, false
  if r.details and with ~= NO_DETAILS then
    if with == HANDED_OUT then
      local f = call('HMGET', details_key(id), 'c', 'm')
      details = { 'c', f[1] or '', 'm', f[2] or '' }
    else
      details = call('HGETALL', details_key(id))
    end
  end
  if r.history and with == ALL_DETAILS then history = call('LRANGE', history_key(id), 0, -1) end
  return { id, raw, l.queue, l.uid, s.id, s.pool, decimal(s.version), details, history }
end
