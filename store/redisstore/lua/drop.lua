-- Ends tasks of a deleted source in some of its lanes (dispatch.Sources.DropTasks).
--
-- KEYS[1]  the shard key
-- ARGV     uid, the number of the last lane that is done (-1 = continue after an
--          earlier call), limit of tasks to end, limit of leased tasks; the lane with
--          leased tasks that a call has begun to read, with score and member of the
--          last one; who deleted the source, and why (JSON; '' = not known)
-- Returns  ended, the number of the last lane that is done, whether lanes are
--          left, the leased tasks found, and the start of the next call
-- Cost     O(log n) a task; at most 100 tasks, 50 lanes and 500 leased ones
--
-- uses: forget rank
local CANCELED_MEMORY, SOURCE_DELETED = 86400000, 2
local uid, last, limit, leased_limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ended, leased, looks = 0, {}, 500
local begun, score, after = ARGV[5], ARGV[6], ARGV[7]

local function cancel(l, suffix, was_settled)
  local id = id_of(l, suffix)
  local r = read_record(call('GET', task_key(id)))
  if not r then
    if was_settled then
      if call('ZREM', dead_key(l.name), suffix) == 1 then count(uid, 'dead', -1) end
      if call('ZREM', canceled_key(l.name), suffix) == 1 then count(uid, 'canceled', -1) end
    else
      drop_entry(l, id)
    end
    return
  end
  local state = r.state
  local before = { state = state, details = r.details, history = r.history }
  r.state, r.cancel, r.again, r.revision = CANCELED, 0, false, r.revision + 1
  if not was_settled then r.settled_at = now end
  if was_settled then
    leave_settled(l, id, before)
  else
    leave_waiting(l, id)
    outstanding(l.uid, r, -1)
  end
  enter_settled(l, id, r, CANCELED_MEMORY)
  ended = ended + 1
end

-- Ends what a set names; says whether all of it is done.
local function end_all(l, set, from, to, was_settled)
  if ended >= limit then return call('ZCOUNT', set, from, to) == 0 end
  local left = limit - ended
  local found = call('ZRANGEBYSCORE', set, from, to, 'LIMIT', 0, left)
  for _, suffix in ipairs(found) do cancel(l, suffix, was_settled) end
  return #found < left
end

-- Meets leased tasks of a lane; says whether those are all.
local function meet_leased(l)
  if begun ~= l.name then score, after = '', '' end
  begun = l.name
  local set = tasks_key(l.name)
  local rank = first_rank(set, decimal(LEASED_FROM), score, after)
  local found = call('ZRANGE', set, rank, rank + looks - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) >= ORPHAN_FROM then return true end
    if #leased >= leased_limit then return false end
    local id = id_of(l, found[i])
    local h = call('GETRANGE', task_key(id), 0, LEASE + AT.cancel - 1)
    if is_leased(h) and string.byte(h, -1) ~= SOURCE_DELETED then leased[#leased + 1] = id end
    score, after, looks = found[i + 1], found[i], looks - 1
  end
  return looks > 0
end

if not get_source(uid).known or not get_source(uid).deleted then return { 0, last, 0, {}, '', '', '' } end
if ARGV[8] ~= '' then call('HSET', source_key(uid), 'why', ARGV[8]) end
if last < 0 then last = tonumber(call('HGET', source_key(uid), 'dropped') or '0') end
local found = call('ZRANGEBYSCORE', lanes_key(uid), '(' .. decimal(last), '+inf', 'LIMIT', 0, 50, 'WITHSCORES')
local all = true
for i = 2, #found, 2 do
  local l = get_lane(found[i])
  local beyond = '(' .. decimal(now + CANCELED_MEMORY)
  trim_settled(dead_key(l.name), FORGET_LIMIT)
  trim_settled(canceled_key(l.name), FORGET_LIMIT)
  local set = tasks_key(l.name)
  all = end_all(l, set, '-inf', '(' .. decimal(LEASED_FROM), false) and end_all(l, set, ORPHAN_FROM, '+inf', false)
    and end_all(l, dead_key(l.name), '-inf', '+inf', true)
    and end_all(l, canceled_key(l.name), beyond, '+inf', true)
  if all then
    all = meet_leased(l)
    drop_lane(l)
  end
  if not all or #leased >= leased_limit then
    all = false
    break
  end
  last = l.n
end
call('HSET', source_key(uid), 'dropped', decimal(last))
finish(true)
return { ended, last, (not all or #found == 100) and 1 or 0, leased, begun, score, after }
