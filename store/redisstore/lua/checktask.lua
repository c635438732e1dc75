-- The check of tasks by their records: each stands once, where its state says.
local LATER = lane.LATER
-- By how many ms two instants may differ that one script has written: its commands may see later ones than the script.
local SLACK = 5000

-- A lease that has ended leaves no lock.
local function check_old_lock(id, r)
  if r.last == record.NO_DIGEST then return end
  local fence = match(call('MGET', key.lock(id))[1] or '', '/(%d+)$')
  if fence == format('%d', (parse('>I8', r.last, 2))) and check.found('lock', id, 'the lock of a lease that has ended is left') then
    call('DEL', key.lock(id))
  end
end

-- A task that waits stands in its lane, by its due time, or among the orphans.
local function check_waiting(id, r)
  local q = queue.get(r.queue)
  local l, suffix, member = queue.lane(q, r.source), record.suffix(id), lease.orphan(id, r.source, r.queue)
  local score, orphan, rank = l and lane.score(l, suffix), call('ZSCORE', key.leases, member), record.rank(r)
  if score and score ~= rank * BAND + r.due and score ~= LATER + r.due * 32 + rank then
    if not check.found('task', id, 'it stands in its lane at a wrong place') then return end
    lane.remove(l, suffix)
    q.waiting, score = q.waiting - 1, nil
  elseif score and orphan then
    if check.found('task', id, 'it waits in its lane and for a lock') then call('ZREM', key.leases, member) end
    return
  elseif score or orphan or not check.found('task', id, 'it waits, and stands nowhere') then
    return
  end
  local s, ready = source.get(r.source), r.due <= now
  -- What was lost with the value of the queue is when it was asked last.
  if not q.exists and q.next_grant == 0 then q.next_grant = now_end + gate.delay(q) end
  task.enter(id, r)
  source.count(s, ready and 'ready' or 'scheduled', -1) -- it was counted when it came
end

-- A leased task stands in the lease index, at its deadline at most, and in the note of its grant.
local function check_leased(id, r)
  local member = lease.member(id, r.source, r.queue)
  local at = tonumber(call('ZSCORE', key.leases, member) or nil)
  if (not at or at > r.deadline) and check.found('task', id, at and 'the lease index has it behind its deadline' or 'it is leased, and not in the lease index') then
    call('ZADD', key.leases, decimal(r.deadline), member)
  end
  grant.check(id, r)
  local name = key.lock(id)
  if call('MGET', name)[1] == format('%s/%d', r.holder, (parse('>I8', r.digest, 2))) then
    local ttl = call('PTTL', name)
    if (ttl == -1 or math.abs(ttl + now - r.deadline) > SLACK) and check.found('lock', id, 'the lock of its lease does not end with it') then
      call('PEXPIREAT', name, decimal(r.deadline))
    end
  end
end

-- A settled task stands among those of its lane until it is forgotten; a done one that has an
-- end nowhere.
local function check_settled(id, r)
  local ttl = call('PTTL', key.task(id))
  if ttl == -2 or r.state == record.DONE and ttl >= 0 then return end
  local name = text_of(r.source) .. ':' .. r.queue
  local set, gone = r.state == record.DEAD and key.dead(name) or key.canceled(name), ttl < 0 and INF or now + ttl + 1
  local at = tonumber(call('ZSCORE', set, id) or nil)
  if at and (at == gone or math.abs(at - gone) < SLACK) then return end
  if not check.found('task', id, at and 'it is forgotten at another time than its record' or 'it has settled, and stands nowhere') then return end
  call('ZADD', set, gone, id)
  check.lists(r.source, r.queue)
end

-- Gives the task to the number that its source has now.
local function move(id, r, to)
  local name = text_of(r.source) .. ':' .. r.queue
  if r.state == record.WAITING then
    local q = queue.get(r.queue)
    local l = queue.lane(q, r.source)
    if l and lane.remove(l, record.suffix(id)) then
      q.waiting = q.waiting - 1
      lane.touch(l)
    end
    call('ZREM', key.leases, lease.orphan(id, r.source, r.queue))
  elseif r.state == record.LEASED then
    call('ZREM', key.leases, lease.member(id, r.source, r.queue))
  else
    call('ZREM', r.state == record.DEAD and key.dead(name) or key.canceled(name), id)
  end
  r.source = to
  call('SET', key.task(id), record.pack(r), 'KEEPTTL')
end

-- Counts a task by its source: those that wait, are leased, done, dead, canceled, and out.
local FIELD = { [record.WAITING] = 1, [record.LEASED] = 2, [record.DONE] = 3, [record.DEAD] = 4, [record.CANCELED] = 5 }
local function tally(sums, r)
  local c = sums[r.source]
  if not c then
    c = { 0, 0, 0, 0, 0, 0 }
    sums[r.source] = c
  end
  local field = FIELD[r.state]
  if field then c[field] = c[field] + 1 end
  if (field == 1 or field == 2) and not r.recurring then c[6] = c[6] + 1 end
end

-- Checks leased tasks: before all else, since queues count what the lease index has.
--
-- ARGV     whether to repair (0, 1); ids, also of other tasks
-- Returns  findings
-- Cost     O(log n) a leased task, and a read of the others; at most 100
function scripts.checkleased()
  check.begin(ARGV[1])
  local ids = {}
  for i = 2, #ARGV do
    if call('GETRANGE', key.task(ARGV[i]), 0, 0) == string.char(record.MARK) then ids[#ids + 1] = ARGV[i] end
  end
  check.each_record(ids, function(id, raw)
    local r = raw and record.read(raw)
    if r and r.queue ~= '' then check_leased(id, r) end
  end)
  return check.finish()
end

-- Checks tasks by their records.
--
-- ARGV     whether to repair (0, 1); how many sources have another number than their tasks, and
--          of each the one of the tasks and its own; ids
-- Returns  findings; flat, of tasks whose source is not known: id, the number of the source; and
--          flat, by source: its number, how many wait, are leased, done, dead, canceled, and
--          one-shot tasks that wait or are leased
-- Cost     O(log n) a task; at most 100
function scripts.checktasks()
  check.begin(ARGV[1])
  local moves, at, unowned, sums = {}, 3, {}, {}
  for _ = 1, tonumber(ARGV[2]) do
    moves[tonumber(ARGV[at])], at = tonumber(ARGV[at + 1]), at + 2
  end
  check.each_record(args_from(at), function(id, raw)
    if not raw then return end
    local r = record.read(raw)
    if not r or r.version ~= 1 or r.queue == '' or not match(id, '^%d+%-%S') then
      check.found('record', id, 'its record is damaged', true)
      return
    end
    if moves[r.source] and check.found('task', id, 'its source has another number') then move(id, r, moves[r.source]) end
    if not source.get(r.source).gate then unowned[#unowned + 1], unowned[#unowned + 2] = id, r.source end
    tally(sums, r)
    if r.state ~= record.LEASED then check_old_lock(id, r) end
    if r.state == record.WAITING then check_waiting(id, r)
    elseif r.state == record.LEASED then check_leased(id, r)
    else check_settled(id, r) end
  end)
  local flat = {}
  for n, c in pairs(sums) do
    flat[#flat + 1] = n
    for i = 1, 6 do flat[#flat + 1] = c[i] end
  end
  return { check.finish(), unowned, flat }
end

-- Checks details and histories without an end: each is of a task that has a record.
--
-- ARGV     whether to repair (0, 1); per key its kind, 'd' or 'h', and the id
-- Returns  findings
-- Cost     O(1) a key; at most 100
function scripts.checkbeside()
  check.begin(ARGV[1])
  for i = 2, #ARGV, 2 do
    local what = ARGV[i] .. ':' .. ARGV[i + 1]
    if call('EXISTS', key.task(ARGV[i + 1])) == 0 and call('PTTL', P .. what) == -1
        and check.found('stray', what, 'it is of a task without a record') then
      call('DEL', P .. what)
    end
  end
  return check.finish()
end
