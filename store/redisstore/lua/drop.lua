-- The tasks of a deleted source.
local CANCELED_MEMORY, SOURCE_DELETED = 86400000, 2
local LANES, LOOKS = 50, 500

-- Ends a task, unless it is leased; says whether it did.
local function cancel(id, s)
  local r = record.read(call('GET', key.task(id)))
  if not r or r.state == record.LEASED or r.source ~= s.n then return false end
  if r.state == record.WAITING then
    task.leave(id, r)
    source.outstanding(s, r, -1)
    r.settled_at = now
  else
    settled.leave(s, id, r)
  end
  r.state, r.cancel, r.again, r.revision = record.CANCELED, 0, false, r.revision + 1
  settled.enter(s, id, r, CANCELED_MEMORY)
  return true
end

-- The tasks of a lane that wait, at most limit, and whether those are all; one without a
-- record leaves the lane.
local function waiting_of(l, limit)
  if not l then return {}, true end
  lane.load(l, limit)
  return lane.all(l, limit), lane.size(l) <= limit
end

-- Ends what waits, is dead or canceled in a lane; returns how many, and whether that is all.
local function end_lane(s, name, limit)
  local q, ended = queue.get(name), 0
  local l = queue.lane(q, s.n)
  local entries, all = waiting_of(l, limit)
  for _, e in ipairs(entries) do
    local suffix = e.suffix
    if cancel(q.slot .. '-' .. suffix, s) then ended = ended + 1
    elseif lane.remove(l, suffix) then -- its record was lost
      lane.drop_lost(l, e.score)
      lane.touch(l)
    end
  end
  for _, set in ipairs({ key.dead(s.n .. ':' .. name), key.canceled(s.n .. ':' .. name) }) do
    settled.forget(set, settled.FORGET_LIMIT)
    local from = find(set, ':ld:', 1, true) and '-inf' or '(' .. decimal(now + CANCELED_MEMORY)
    local found = call('ZRANGEBYSCORE', set, from, '+inf', 'LIMIT', 0, max(limit - ended, 0) + 1)
    all = all and #found <= limit - ended
    for i = 1, min(#found, limit - ended) do
      if cancel(found[i], s) then ended = ended + 1 else call('ZREM', set, found[i]) end
    end
  end
  return ended, all
end

-- Ends tasks of a deleted source in some of its lanes (dispatch.Sources.DropTasks), by a scan
-- of them that goes on with each call.
--
-- ARGV     uid; limit of tasks to end; who deleted the source, and why (JSON; '' = not known)
-- Returns  ended, and whether the scan came to its end
-- Cost     O(log n) a task; at most 100 tasks, and about 50 lanes
function scripts.drop()
  local n, limit, ended = source.number(ARGV[1]), tonumber(ARGV[2]), 0
  local s = n and source.get(n)
  if not s or not s.gate or not s.deleted then return { 0, 1 } end
  if ARGV[3] ~= '' then call('HSET', key.drop(n), 'why', ARGV[3]) end
  local cursor = call('HGET', key.drop(n), 'cursor') or '0'
  local found, done = call('SSCAN', key.lanes(n), cursor, 'COUNT', LANES), true
  queue.read_all(found[2])
  for _, name in ipairs(found[2]) do
    local some, all = end_lane(s, name, limit - ended)
    ended = ended + some
    if not all then
      done = false
      break
    end
  end
  finish(true)
  if done then
    cursor = found[1]
    for _, name in ipairs(found[2]) do settled.trim(n, name) end
    finish(false)
  end
  call('HSET', key.drop(n), 'cursor', cursor)
  local left = call('PTTL', key.source(n))
  if left > 0 then call('PEXPIRE', key.drop(n), left) end
  return { ended, done and cursor == '0' and 1 or 0 }
end

-- Ends tasks of a deleted source that wait as orphans, and finds leased ones that were not
-- asked to stop yet (dispatch.Sources.DropTasks).
--
-- ARGV     uid, limit, score and member of the last lease that was looked at ('' = none),
--          limit of tasks to end
-- Returns  score and member for the next call ('' = the end), ended, and the ids
-- Cost     O(log n); at most 500 leases
function scripts.dropleased()
  local n, limit, score, after, most, out = source.number(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5]), { '', '', 0 }
  local s = n and source.get(n)
  if not s or not s.deleted or source.counts(s).leased + source.counts(s).ready <= 0 then return out end
  local rank = lease.rank(key.leases, score, after)
  local found, ended = call('ZRANGE', key.leases, rank, rank + LOOKS - 1, 'WITHSCORES'), true
  for i = 1, #found, 2 do
    local id, its, _, orphan = lease.split(found[i])
    if its == n and orphan == '~' then
      if out[3] < most and cancel(id, s) then out[3] = out[3] + 1 end
    elseif its == n then
      if #out == limit + 3 then
        ended = false
        break
      end
      local h = call('GETRANGE', key.task(id), 0, record.LEASE - 1)
      if lease.deadline(h) and byte(h, 38) ~= SOURCE_DELETED then out[#out + 1] = id end
    end
    score, after = found[i + 1], found[i]
  end
  if not ended or #found == 2 * LOOKS then out[1], out[2] = score, after end
  if out[3] > 0 then finish(true) end
  return out
end
