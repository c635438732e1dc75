-- One pass over the lease index.
local MAX_LOOKS, AHEAD = 500, 500 -- dispatch.MaxSweepLooks, dispatch.SweepAhead
local OUTAGE_AFTER, OUTAGE_GRACE = 5000, 30000
local READ_AT_ONCE, READ_BYTES = 25, 4194304

-- Looks at a waiting record in the index: an orphan becomes grantable when its lock has
-- ended.
local function look_at_orphan(member, id, r)
  local l = queue.lane(queue.get(r.queue), r.source)
  if l and lane.score(l, record.suffix(id)) then
    call('ZREM', key.leases, member)
    return
  end
  local ttl = call('PTTL', key.lock(id))
  if lock.stands(ttl) then
    call('ZADD', key.leases, now + lock.next_look(ttl), member)
    return
  end
  call('ZREM', key.leases, member)
  local q = queue.get(r.queue)
  source.count(source.get(r.source), 'ready', -1)
  q.waiting = q.waiting - 1
  task.enter(id, r)
end

-- Takes out an entry whose record was lost: it no longer counts anywhere.
function lease.drop(member)
  local _, n, queue_name, orphan = lease.split(member)
  local q = queue.get(queue_name)
  call('ZREM', key.leases, member)
  q.dirty, q.touched = true, true
  if orphan == '~' then q.waiting = max(q.waiting - 1, 0) else q.in_flight = max(q.in_flight - 1, 0) end
  source.count(source.get(n), orphan == '~' and 'ready' or 'leased', -1)
  shard.tally('dropped', 1)
end

-- Looks at entries up to now and a little later; gives those that have expired, and whether
-- there is more to look at.
local function look(limit)
  local due, moved, expired = call('ZRANGEBYSCORE', key.leases, '-inf', now + AHEAD, 'LIMIT', 0, MAX_LOOKS, 'WITHSCORES'), {}, {}
  for i = 1, #due, 2 do
    if #expired == limit then break end
    local member, at = due[i], tonumber(due[i + 1])
    local id, _, _, orphan = lease.split(member)
    local head = call('GETRANGE', key.task(id), 0, record.LEASE - 1)
    local deadline = lease.deadline(head)
    if deadline and deadline > at and deadline > now then
      moved[#moved + 1], moved[#moved + 2] = decimal(deadline), member
    elseif at <= now then
      if deadline then expired[#expired + 1] = id
      elseif orphan == '~' and #head > 1 and byte(head, 2) == record.WAITING then look_at_orphan(member, id, record.read(call('GET', key.task(id))))
      else lease.drop(member) end
    end
  end
  return expired, #expired == limit or #due == 2 * MAX_LOOKS, moved
end

-- The tasks, and whether some were left, since they are long.
local function read_tasks(ids)
  local out, bytes = reply.new(), 0
  for from = 1, #ids, READ_AT_ONCE do
    if bytes > READ_BYTES then return out, true end
    local keys = {}
    for i = from, min(from + READ_AT_ONCE - 1, #ids) do keys[#keys + 1] = key.task(ids[i]) end
    for i, raw in ipairs(call('MGET', unpack(keys))) do
      reply.add(out, ids[from + i - 1], raw, record.read(raw), reply.NOTHING)
      bytes = bytes + #raw
    end
  end
  return out, false
end

local function forget_idle_queues()
  for _, name in ipairs(call('ZRANGEBYSCORE', key.idle, '-inf', now, 'LIMIT', 0, settled.FORGET_LIMIT)) do
    queue.get(name).dirty = true -- what holds nothing is deleted
    call('ZREM', key.idle, name)
  end
end

-- One pass over the lease index (dispatch.Leases.Expired): expired leases, tasks that were
-- found READY under a lock that has ended, and records to forget.
--
-- ARGV     limit (at most 200)
-- Returns  now, when to sweep next (0 = no leases), grace, sources, tasks
-- Cost     O(log n) an entry; at most 500 entries, 200 leases and about 4 MiB of them, and
--          100 of each kind to forget
function scripts.expired()
  local f = call('HMGET', key.keeper, 'swept', 'grace')
  local swept, grace = tonumber(f[1] or '0'), tonumber(f[2] or '0')
  local anything = call('EXISTS', key.leases, key.forget, key.idle) > 0
  local late = swept > 0 and now - swept > OUTAGE_AFTER
  local first = (late or grace > now) and tonumber(call('ZRANGE', key.leases, 0, 0, 'WITHSCORES')[2] or nil)
  local was = grace
  if late and first then grace = max(grace, now + now - swept) end
  grace = min(grace, now + OUTAGE_GRACE) -- further ahead, the clock was stepped back
  if grace ~= was then call('HSET', key.keeper, 'grace', decimal(grace)) end
  call('HSET', key.keeper, 'swept', decimal(now))
  token.forget(swept)
  if grace > now and first then return { now, max(grace, first), 1, {}, {} } end
  if not anything then return { now, 0, 0, {}, {} } end
  lease.clamp_all()
  local ids, more, moved = look(tonumber(ARGV[1]))
  call_for_all('ZADD', key.leases, moved)
  local out, long = read_tasks(ids)
  settled.forget_due()
  forget_idle_queues()
  finish(true)
  if more or long then return { now, now, 0, out.sources, out.tasks } end
  local next_at = call('ZRANGEBYSCORE', key.leases, '(' .. decimal(now), '+inf', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return { now, next_at and tonumber(next_at) or 0, 0, out.sources, out.tasks }
end
