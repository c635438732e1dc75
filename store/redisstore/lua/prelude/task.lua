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

-- Puts a waiting task into its lane.
local function enter_waiting(l, id, r)
  local rank, q = rank_of(r), get_queue(l.queue)
  if r.due <= now then
    call('ZADD', ready_key(l.n), rank * BAND + r.due, suffix_of(id))
    count(l.uid, 'ready', 1)
  else
    call('ZADD', later_key(l.n), r.due * 32 + rank, suffix_of(id))
    count(l.uid, 'scheduled', 1)
  end
  q.waiting, q.dirty = q.waiting + 1, true
  touch(l)
end

-- Takes a waiting task out of its lane, or out of the lease index when it is an
-- orphan.
local function leave_waiting(l, id)
  local suffix, q = suffix_of(id), get_queue(l.queue)
  if call('ZREM', ready_key(l.n), suffix) == 1 then
    count(l.uid, 'ready', -1)
  elseif call('ZREM', later_key(l.n), suffix) == 1 then
    count(l.uid, 'scheduled', -1)
  else
    call('ZREM', LEASES, lease_member(l, id))
    count(l.uid, 'ready', -1)
  end
  q.waiting, q.dirty = q.waiting - 1, true
  touch(l)
end

-- Whether a waiting task is an orphan: it stands in the lease index until its
-- lock has ended.
local function is_orphan(l, id) return call('ZSCORE', LEASES, lease_member(l, id)) and true or false end

-- Ends a lease in all indexes; what becomes of the record is the caller's.
local function leave_leased(l, id, r)
  local collector = holder_of(r)
  call('DEL', lock_key(id))
  call('ZREM', LEASES, lease_member(l, id))
  call('ZREM', leased_key(l.n), suffix_of(id))
  call('HDEL', held_key(collector), id)
  count(l.uid, 'leased', -1)
end

local function settled_key(l, state)
  if state == DEAD then return dead_key(l.n) end
  return canceled_key(l.n)
end

-- Files a settled task. remember is in ms, 0 = with its source. The sets of dead
-- and canceled tasks are scored by when they are forgotten.
local function enter_settled(l, id, r, remember)
  count(l.uid, STATE_FIELD[r.state], 1)
  local gone = remember > 0 and now + remember or INF
  if remember > 0 then
    expire_at(task_key(id), gone)
    if r.details then expire_at(details_key(id), gone) end
    if r.history then expire_at(history_key(id), gone) end
  end
  if r.state == DONE and remember > 0 then return end
  local set = r.state == DONE and canceled_key(l.n) or settled_key(l, r.state)
  call('ZADD', set, gone, suffix_of(id))
  if remember > 0 then call('ZADD', FORGET, 'LT', gone, set) end
end

-- Takes a settled task out of what is to be forgotten.
local function leave_settled(l, id, r)
  count(l.uid, STATE_FIELD[r.state], -1)
  call('ZREM', dead_key(l.n), suffix_of(id))
  call('ZREM', canceled_key(l.n), suffix_of(id))
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
