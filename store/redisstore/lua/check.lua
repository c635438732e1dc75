-- What a check finds, and repairs when it is asked to (redisstore.Store.Check): each script looks
-- at some tasks, entries, queues or sources, and what it finds and repairs is one step. The parts
-- are in this order: a source, its queues, the entries of their lanes, the tasks, and then what
-- is counted.

-- What a call found, flat: kind, what it is about, what is wrong, 1 if it was repaired (else 0).
local out, repairing

function check.begin(repair) out, repairing = {}, repair == '1' end

-- Notes a finding; says whether it is to be repaired.
function check.found(kind, what, text, lost)
  local repair, n = repairing and not lost, #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = kind, what, text, repair and 1 or 0
  return repair
end

-- Notes what is not checked, and why.
function check.skipped(what, why) check.found('skipped', what, why, true) end

function check.repairs() return repairing end

-- Ends a call that looked, and may have repaired.
function check.finish()
  if repairing then finish(true) end
  return out
end

-- The records of tasks, some at a time, since bodies may be long.
local AT_ONCE = 25
function check.each_record(ids, each)
  for from = 1, #ids, AT_ONCE do
    local keys = {}
    for i = from, min(from + AT_ONCE - 1, #ids) do keys[#keys + 1] = key.task(ids[i]) end
    for i, raw in ipairs(call('MGET', unpack(keys))) do each(ids[from + i - 1], raw) end
  end
end

-- Gives each entry of the lease index: id, source, queue, whether it is an orphan. Of more than a
-- check reads in one step it gives none, unless a repair needs all, and returns false.
local MOST_LEASES = 50000
function check.each_lease(each, needed)
  if not needed and call('ZCARD', key.leases) > MOST_LEASES then return false end
  for _, member in ipairs(call('ZRANGE', key.leases, 0, -1)) do
    local id, n, queue_name, orphan = lease.split(member)
    if n then each(id, n, queue_name, orphan == '~') end
  end
  return true
end

-- Whether a record waits in that lane.
function check.waits_in(raw, n, queue_name)
  local r = raw and record.read(raw)
  return r and r.state == record.WAITING and r.source == n and r.queue == queue_name
end

-- Takes what does not wait there out of a lane. A task without a record was counted.
function check.take_out(l, suffix, raw)
  local score = lane.remove(l, suffix)
  if not score then return end
  if raw then l.q.waiting = l.q.waiting - 1 else lane.drop_lost(l, score) end
  lane.touch(l)
end

-- The lists of lanes: `lanes` has those that have tasks, `kept` those that have settled ones, and
-- `ends` the sources of these and of the lanes that only a deletion ends; `forget` has the sets of
-- settled tasks by the first that is forgotten.
local function check_forget(name)
  for _, set in ipairs({ key.dead(name), key.canceled(name) }) do
    local first = call('ZRANGE', set, 0, 0, 'WITHSCORES')
    local at = tonumber(first[2] or nil)
    local look = tonumber(call('ZSCORE', key.forget, set) or nil)
    if at and at < INF and (not look or look > at) and check.found('list', name, 'its settled tasks are not going to be forgotten') then
      call('ZADD', key.forget, first[2], set)
    end
  end
end

local function check_list(name, list, member, wanted, text)
  local listed = call('SISMEMBER', list, member) == 1
  if listed == wanted or not check.found('list', name, text .. (listed and ' lists it, and it has no such tasks' or ' does not list it')) then return end
  call(wanted and 'SADD' or 'SREM', list, member)
end

function check.lists(n, queue_name)
  local name = text_of(n) .. ':' .. queue_name
  local ok, q = pcall(queue.get, queue_name)
  if not ok then return end
  local l = queue.lane(q, n)
  local waits, has = l and not lane.is_empty(l) or false, call('EXISTS', key.dead(name), key.canceled(name)) > 0
  if waits or has or not l then check_list(name, key.lanes(n), queue_name, waits or has, 'lanes') end -- it may stay for the next task
  check_list(name, key.kept, name, has, 'kept')
  local deleted = source.get(n).deleted and waits
  if not deleted then check_list(name, key.ends(queue_name), text_of(n), has, 'ends') end
  check_forget(name)
end

-- Checks in which lists lanes are.
--
-- ARGV     whether to repair (0, 1); per lane: source, queue
-- Returns  findings
-- Cost     about 10 commands a lane; at most 100
function scripts.checklanes()
  check.begin(ARGV[1])
  for i = 2, #ARGV, 2 do check.lists(tonumber(ARGV[i]), ARGV[i + 1]) end
  return check.finish()
end

-- Checks entries of a set behind the head of a lane: each is of a task that waits there.
--
-- ARGV     whether to repair (0, 1); source, queue, slot; ends of ids
-- Returns  findings
-- Cost     O(log n) an entry; at most 100
function scripts.checkentries()
  check.begin(ARGV[1])
  local n, queue_name, ids = tonumber(ARGV[2]), ARGV[3], {}
  local l = queue.lane(queue.get(queue_name), n)
  if not l then return out end
  for i = 5, #ARGV do ids[i - 4] = ARGV[4] .. '-' .. ARGV[i] end
  check.each_record(ids, function(id, raw)
    if check.waits_in(raw, n, queue_name) then return end
    local suffix = record.suffix(id)
    if lane.score(l, suffix) and check.found('entry', id, 'lane ' .. l.name .. ' has it, and it does not wait there') then
      check.take_out(l, suffix, raw)
    end
  end)
  return check.finish()
end

-- Checks entries of the lease index: each is of a lease, or of a task that waits under a lock.
--
-- ARGV     whether to repair (0, 1); members
-- Returns  findings
-- Cost     O(log n) an entry; at most 100
function scripts.checkleases()
  check.begin(ARGV[1])
  local ids, members = {}, {}
  for i = 2, #ARGV do
    local id, n = lease.split(ARGV[i])
    if id and n and call('ZSCORE', key.leases, ARGV[i]) then
      ids[#ids + 1], members[#members + 1] = id, ARGV[i]
    elseif not (id and n) and check.found('lease', ARGV[i], 'the lease index has it, and it is no lease') then
      call('ZREM', key.leases, ARGV[i])
    end
  end
  local i = 0
  check.each_record(ids, function(id, raw)
    i = i + 1
    local member = members[i]
    local _, n, queue_name, orphan = lease.split(member)
    local r = raw and record.read(raw)
    local state = orphan == '~' and record.WAITING or record.LEASED
    if r and r.state == state and r.source == n and r.queue == queue_name then return end
    if not check.found('lease', id, 'the lease index has it in lane ' .. text_of(n) .. ':' .. queue_name .. ', and it is not leased there') then return end
    if not raw then return lease.drop(member) end
    call('ZREM', key.leases, member)
  end)
  return check.finish()
end

-- Checks entries of a set of dead or canceled tasks.
--
-- ARGV     whether to repair (0, 1); the set, 'ld' or 'lc'; source, queue; ids
-- Returns  findings
-- Cost     O(log n) an entry; at most 100
function scripts.checksettled()
  check.begin(ARGV[1])
  local n, queue_name, ids = tonumber(ARGV[3]), ARGV[4], args_from(5)
  local name = text_of(n) .. ':' .. queue_name
  local dead = ARGV[2] == 'ld'
  local set, s = dead and key.dead(name) or key.canceled(name), source.get(n)
  local owned = s.gate and source.number(s.uid) == n
  check.each_record(ids, function(id, raw)
    local r, at = raw and record.read(raw), tonumber(call('ZSCORE', set, id) or nil)
    if not at then return end
    local fits = r and r.source == n and r.queue == queue_name
    if fits and (r.state == record.DEAD) == dead and r.state >= record.DONE then return end
    if at <= now + 1000 and owned then return end -- a sweep is about to forget it; the same task may be there anew
    if not check.found('settled', id, (dead and 'ld:' or 'lc:') .. name .. ' has it, and it is not there') then return end
    call('ZREM', set, id)
    if not raw then source.count(s, dead and 'dead' or 'canceled', -1) end
  end)
  if repairing then
    finish(true)
    check.lists(n, queue_name)
  end
  return check.finish()
end

