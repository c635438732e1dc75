-- Tasks among the sets of their lane, and how they are handed to Go.
local touched_list = {}

local function touch(l)
  if l.touched then return end
  l.touched = true
  touched_list[#touched_list + 1] = l
end

-- One-shot tasks that wait or are leased, which a source's limit counts.
local function outstanding(uid, r, n)
  if not r.recurring then tally_source(uid, 'out', n) end
end

-- Leases that end and tasks that wait again, written to locks, lanes and what
-- collectors hold by flush_moves, each once. ended has the lanes with what leaves them,
-- left, and entering those with what comes to them.
local ended, entering = false, {}

-- Ends leases of a lane in all indexes but the lease index, which stays behind
-- (expired.lua); what becomes of the records, and of the queue's leases in flight, is
-- the caller's. So is what is returned, to which each lease adds the end of its id, the
-- key of its lock with its holder and its digest, one to those that its holder has, and its
-- digest, of that holder, unless it is as if it had never been granted. The queue is
-- placed; the lane changes when the task waits again.
local function leave_leased(l)
  ended = ended or { locks = {}, held = {}, digests = {} }
  if not l.left then
    l.left, ended[#ended + 1] = {}, l
    get_queue(l.queue).touched = true
  end
  return l.left, ended.locks, ended.held, ended.digests
end

-- Puts a waiting task that stands nowhere into its lane.
local function enter_waiting(l, id, r)
  local e = l.entering
  if not e then
    e = { ready = 0, later = 0, rank = INF, due = INF }
    l.entering, entering[#entering + 1] = e, l
    touch(l)
  end
  local rank, n, score = rank_of(r), #e, nil
  if r.due <= now then
    score, e.ready, e.rank = rank * BAND + r.due, e.ready + 1, min(e.rank, rank)
  else
    local place = r.due * 32 + rank
    score, e.later, e.due = LATER_FROM + place, e.later + 1, min(e.due, place)
  end
  e[n + 1], e[n + 2] = decimal(score), suffix_of(id)
end

local flush_moves
do
  -- Deletes the locks of leases, each given by its key, its holder and the lease's digest:
  -- where another value than the lease token stands, somebody else has set that lock.
  local function delete_locks(locks)
    local keys = {}
    for i = 1, #locks, 3 do keys[#keys + 1] = locks[i] end
    local values, own = call('MGET', unpack(keys)), {}
    for i = 1, #keys do
      local fence = struct.unpack('>I8', locks[3 * i], 2)
      if values[i] == locks[3 * i - 1] .. '/' .. decimal(fence) then own[#own + 1] = keys[i] end
    end
    if #own > 0 then call('DEL', unpack(own)) end
  end

  -- Removes n leases from a collector's grant (internal/key); returns whether nothing is left.
  local function release(holder, n)
    local at = string.find(holder, '/', 1, true)
    local key = held_key(string.sub(holder, 1, at - 1))
    if n == 1 and call('HDEL', key, string.sub(holder, at)) == 1 then return true end
    local token = string.sub(holder, at + 1)
    if call('HINCRBY', key, token, -n) > 0 then return false end
    call('HDEL', key, token, token .. '/', '/' .. token)
    return true
  end

  local function flush_ended()
    delete_locks(ended.locks)
    local over, digests = {}, ended.digests
    for holder, n in pairs(ended.held) do
      if release(holder, n) and digests[holder] then over[#over + 1] = string.sub(digests[holder], -8) end
    end
    if #over > 0 then noted.used.note(over) end
    for i = 1, #ended do
      local l = ended[i]
      call('ZREM', tasks_key(l.name), unpack(l.left))
      count(l.uid, 'leased', -#l.left)
      l.left = nil
    end
    ended = false
  end

  local function flush_entering(l)
    local e, q = l.entering, get_queue(l.queue)
    call('ZADD', tasks_key(l.name), unpack(e))
    count(l.uid, 'ready', e.ready)
    count(l.uid, 'scheduled', e.later)
    front.came(l, 'rank', e.rank)
    front.came(l, 'later', e.due)
    q.waiting, q.dirty, l.entering = q.waiting + e.ready + e.later, true, nil
  end

  function flush_moves()
    if ended then flush_ended() end
    if #entering == 0 then return end
    for i = 1, #entering do flush_entering(entering[i]) end
    entering = {}
  end
end

-- Where a task stands in its lane: 'ready', 'later', 'leased', 'orphan' or nil.
local function place_of(l, suffix)
  flush_moves()
  local score = tonumber(call('ZSCORE', tasks_key(l.name), suffix) or nil)
  if not score or score < LATER_FROM then return score and 'ready' end
  return score >= ORPHAN_FROM and 'orphan' or score >= LEASED_FROM and 'leased' or 'later'
end

-- Whether a waiting task is an orphan: it stands in the lease index until its
-- lock has ended.
local function is_orphan(l, id) return place_of(l, suffix_of(id)) == 'orphan' end

-- Removes a task from its lane, at the place of place_of.
local function leave_lane(l, id, place)
  local q = get_queue(l.queue)
  call('ZREM', tasks_key(l.name), suffix_of(id))
  if place == 'ready' then front.is(l, 'rank', nil) elseif place == 'later' then front.is(l, 'later', nil) end
  if place == 'orphan' then call('ZREM', LEASES, orphans.member(l, id)) end
  if place == 'leased' then
    q.in_flight = max(q.in_flight - 1, 0) -- the queue may have been lost
    count(l.uid, 'leased', -1)
  else
    q.waiting = max(q.waiting - 1, 0)
    count(l.uid, place == 'later' and 'scheduled' or 'ready', -1)
  end
  q.dirty, l.removed = true, true
  touch(l)
end

local function leave_waiting(l, id) leave_lane(l, id, place_of(l, suffix_of(id)) or 'ready') end

-- An index entry without a record no longer counts anywhere.
local function drop_entry(l, id)
  local place = place_of(l, suffix_of(id))
  if not place then return end
  leave_lane(l, id, place)
  tally('dropped', 1)
end

local enter_settled, leave_settled
do
  local FIELD = { [DONE] = 'done', [DEAD] = 'dead', [CANCELED] = 'canceled' }

  -- Writes and files a settled task. remember is in ms, 0 = with its source. The
  -- sets of dead and canceled tasks are scored by when they are forgotten.
  function enter_settled(l, id, r, remember)
    count(l.uid, FIELD[r.state], 1)
    local gone = remember > 0 and now + remember or INF
    if remember == 0 then
      write_record(id, r)
    else
      call('SET', task_key(id), pack_record(r), 'PXAT', decimal(gone - 1))
      if r.details then expire_at(details_key(id), gone) end
      if r.history then expire_at(history_key(id), gone) end
    end
    if r.state == DONE and remember > 0 then return end
    local set = r.state == DEAD and dead_key(l.name) or canceled_key(l.name)
    call('ZADD', set, gone, suffix_of(id))
    if not l.settled then
      l.settled, l.dirty = true, true
    end
    if remember > 0 then call('ZADD', FORGET, 'LT', gone, set) end
  end

  -- Removes a settled task from the tasks to forget.
  function leave_settled(l, id, r)
    count(l.uid, FIELD[r.state], -1)
    if l.settled then
      call('ZREM', dead_key(l.name), suffix_of(id))
      call('ZREM', canceled_key(l.name), suffix_of(id))
    end
    if r.details then call('PERSIST', details_key(id)) end
    if r.history then call('PERSIST', history_key(id)) end
  end
end

-- Tasks of one lane for Go: queue, source uid, source id, pool, version, slot, and of
-- each task the end of its id and its record, and a list where more of it was asked
-- for and is there: fields of its details, and 'h' with its history.
local function begin_tasks(l)
  local s = get_source(l.uid)
  return { l.queue, l.uid, s.id, s.pool, s.version, l.slot }
end

-- The details that a holder gets.
local function holder_details(id)
  local f = call('HMGET', details_key(id), 'c', 'm')
  return { 'c', f[1] or '', 'm', f[2] or '' }
end

-- The lock that keeps a waiting task from being granted: when it ends, 0 = never, and its
-- value, cut to dispatch.MaxLockValue bytes; of one that is gone, when that will be seen.
-- nil where there is none. (MGET, since somebody may have set it to what is no string.)
function orphans.lock(l, id)
  local ttl = call('PTTL', lock_key(id))
  if orphans.locked(ttl) then
    return decimal(ttl > 0 and now + ttl or 0) .. ' ' .. string.sub(call('MGET', lock_key(id))[1] or '?', 1, 512)
  end
  local look = call('ZSCORE', LEASES, orphans.member(l, id))
  return look and decimal(tonumber(look)) .. ' ' or nil
end

-- A task for Go, with what is asked for of its details: none, what a holder
-- gets, its history alone, or all.
local WITH = { nothing = 0, holder = 1, history = 2, all = 3 }

local function task_reply(id, raw, r, with)
  local l = get_lane(r.lane)
  local out, more = begin_tasks(l), nil
  if r.details and with == WITH.holder then more = holder_details(id)
  elseif r.details and with == WITH.all then more = call('HGETALL', details_key(id)) end
  if r.history and with >= WITH.history then
    more = more or {}
    more[#more + 1], more[#more + 2] = 'h', call('GET', history_key(id)) or ''
  end
  if r.state == WAITING and with == WITH.all then
    local lock = orphans.lock(l, id)
    if lock then
      more = more or {}
      more[#more + 1], more[#more + 2] = 'l', lock
    end
  end
  local why = with == WITH.all and get_source(l.uid).deleted and call('HGET', source_key(l.uid), 'why')
  if why then
    more = more or {}
    more[#more + 1], more[#more + 2] = 'x', why
  end
  out[7], out[8], out[9] = suffix_of(id), raw, more
  return out
end

-- at each call
if touched_list[1] then touched_list = {} end
if entering[1] then entering = {} end
ended = false
