-- The lease index: leases by deadline, and orphans by when they are looked at. A member is
-- the task's id and its lane, so that a lease without a record still says whose it was. A
-- renewal writes the deadline into the record alone; the sweep that comes to the entry
-- moves it.
function lease.member(id, n, queue_name) return id .. ':' .. text_of(n) .. ':' .. queue_name end
function lease.orphan(id, n, queue_name) return lease.member(id .. '~', n, queue_name) end
-- The task's id, the source, the queue, and '~' of an orphan.
local function split(member)
  local id, orphan, n, queue_name = match(member, '^([^:~]*)(~?):(%d+):(.*)$')
  return id, tonumber(n), queue_name, orphan
end
lease.split = split

local LEASE = record.LEASE
local MAX_LEASE = 3600000
local AT_DEADLINE = 24

-- The deadline of a record that is leased, nil of any other; of its first bytes.
local function deadline_of(raw)
  return #raw >= LEASE and byte(raw) == record.MARK and parse('>I6', raw, AT_DEADLINE) or nil
end

lease.deadline = deadline_of

-- How long ago the deadline of the most overdue lease was. Of renewed leases the index may
-- have an earlier one than the record.
function lease.overdue()
  local oldest = 0
  local due = call('ZRANGEBYSCORE', key.leases, '-inf', now, 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #due, 2 do
    local at = deadline_of(call('GETRANGE', key.task((split(due[i]))), 0, LEASE - 1))
    oldest = max(oldest, now - (at or tonumber(due[i + 1])))
  end
  return oldest
end

-- After the clock was stepped back no lease lasts longer than it was given for, and no lock
-- longer than a lease can. Gives when the entry is looked at.
local function clamp(id)
  local r, ttl = record.read(call('GET', key.task(id))), call('PTTL', key.lock(id))
  local leased, at = r and r.state == record.LEASED, now + (ttl == -1 and MAX_LEASE or min(max(ttl, 0), MAX_LEASE))
  if leased then
    at = min(at, now + r.duration)
    call('SETRANGE', key.task(id), AT_DEADLINE - 1, pack('>I6', at))
  end
  if ttl > 0 then call('PEXPIREAT', key.lock(id), decimal(at)) end
  return leased and at or now + lock.next_look(at - now)
end

function lease.clamp_all()
  for _, member in ipairs(call('ZRANGEBYSCORE', key.leases, now + MAX_LEASE + 1, '+inf', 'LIMIT', 0, 100)) do
    call('ZADD', key.leases, clamp((split(member))), member)
  end
end

-- Reads a page of the lease index (dispatch.Leases.ListLeases, Tasks.ListTasks).
--
-- ARGV     limit of tasks, limit of bytes (the first task always fits); the score and
--          member to begin after ('' = the first); the uid and the queue that they are of
--          ('' = any); whether orphans are read, too (0, 1)
-- Returns  now, sources, tasks, their bytes, number of entries read, score and member of the
--          last entry ('' = the end)
-- Cost     O(log n + limit), at most 500 entries
-- flags: no-writes
function scripts.leases()
  local MOST = 500
  local limit, limit_bytes, score, after, queue_name = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[6]
  local n = ARGV[5] ~= '' and (source.number(ARGV[5]) or 0)
  local rank, page, looked, ended = lease.rank(key.leases, score, after), reply.page(), 0, true
  local found = call('ZRANGE', key.leases, rank, rank + MOST - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local id, its, its_queue = split(found[i])
    if (not n or n == its) and (queue_name == '' or queue_name == its_queue) then
      local head = call('GETRANGE', key.task(id), 0, 1)
      local met = #head == 2 and (record.is_leased(head) or ARGV[7] == '1' and byte(head, 2) == record.WAITING)
      if met and (page.n >= limit or not reply.add_to_page(page, id, limit_bytes)) then
        ended = false
        break
      end
    end
    looked, score, after = looked + 1, found[i + 1], found[i]
  end
  if ended and #found < 2 * MOST then score, after = '', '' end
  return { now, page.list.sources, page.list.tasks, page.bytes, looked, score, after }
end

-- The rank of the first entry of a set to read, after an entry with a score ('' = from the
-- start). One that has moved since is looked for among those of its score.
function lease.rank(set, score, after)
  if score == '' then return 0 end
  if call('ZSCORE', set, after) == score then return call('ZRANK', set, after) + 1 end
  local rank = call('ZCOUNT', set, '-inf', '(' .. score)
  while true do
    local m = call('ZRANGE', set, rank, rank, 'WITHSCORES')
    if not m[1] or m[2] ~= score or before(after, m[1]) then return rank end
    rank = rank + 1
  end
end

-- Marks leased tasks, so that their holders get a request to stop, and notifies all
-- dispatchers in one message. The mark of a hold does not replace another mark
-- (dispatch.Leases.RequestCancel).
--
-- ARGV     reason, a line for the history of the marked tasks ('' = none), ids
-- Returns  how many were marked
-- Cost     3 commands a task, with a line 5; at most 100
function scripts.cancel()
  local reason, line, marked, told = tonumber(ARGV[1]), ARGV[2], 0, {}
  for i = 3, #ARGV do
    local id = ARGV[i]
    local r = record.read(call('GET', key.task(id)))
    if r and r.state == record.LEASED and r.cancel ~= reason and (reason ~= record.CANCEL_HELD or r.cancel == 0) then
      r.cancel, r.revision = reason, r.revision + 1
      if line ~= '' then
        call('SET', key.history(id), task.with_history(r.history and call('GET', key.history(id)), false, '', line))
        r.history = true
      end
      record.write(id, r)
      marked = marked + 1
      local holder = match(r.holder, '^([^/ ]+)/')
      if holder then told[#told + 1] = 'cancel ' .. holder .. ' ' .. id .. ' ' .. ARGV[1] end
    end
  end
  if #told > 0 then call('PUBLISH', match(P, '^(.*):{%d+}:$') .. ':hints', concat(told, '\n')) end
  return marked
end
