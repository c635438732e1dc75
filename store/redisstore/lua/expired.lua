-- One look at the lease index (dispatch.Leases.Expired): what has run out, what
-- was found READY under a lock that has ended, and what is to be forgotten.
--
-- KEYS[1]  the shard key
-- ARGV     limit (at most 200)
-- Returns  now, next deadline (0 = none), grace, tasks
-- Cost     O(log n) an entry; at most 200 leases, and 100 of each kind to forget
--
-- uses: base keys record counts settings lane queue task forget finish
local OUTAGE_AFTER, OUTAGE_GRACE, MAX_LEASE = 5000, 30000, 3600000

local function entry(member)
  local id, n = string.match(member, '^(.*):(%d+)$')
  return id, get_lane(n)
end

-- Looks at a waiting record in the index: an orphan becomes grantable when its
-- lock has ended.
local function look_at_orphan(l, id, r, member)
  if not is_orphan(l, id) then
    call('ZREM', LEASES, member)
    return
  end
  local ttl = call('PTTL', lock_key(id))
  if ttl > 0 then
    call('ZADD', LEASES, now + ttl, member)
    return
  end
  leave_lane(l, id, 'orphan')
  enter_waiting(l, id, r)
end

-- After the clock was stepped back no lease lasts longer than it was given for.
local function clamp_deadlines()
  for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, now + MAX_LEASE + 1, '+inf', 'LIMIT', 0, 100)) do
    local id, l = entry(member)
    local r, ttl = read_record(call('GET', task_key(id))), call('PTTL', lock_key(id))
    local at = now + min(max(ttl, 0), MAX_LEASE)
    if r and r.state == LEASED then
      at = min(at, now + r.duration)
      call('SETRANGE', task_key(id), AT_DEADLINE - 1, struct.pack('>I6', at))
    end
    if ttl > 0 then call('PEXPIREAT', lock_key(id), decimal(at)) end
    call('ZADD', LEASES, at, member)
  end
end

local function collect(limit)
  local tasks = {}
  for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, limit)) do
    local id, l = entry(member)
    local raw = call('GET', task_key(id))
    local r = read_record(raw)
    if r and r.state == LEASED and r.deadline > now then
      call('ZADD', LEASES, r.deadline, member) -- the index was behind
    elseif r and r.state == LEASED then
      tasks[#tasks + 1] = task_reply(id, raw, r, NO_DETAILS)
    elseif r and r.state == WAITING then
      look_at_orphan(l, id, r, member)
    else
      call('ZREM', LEASES, member)
      drop_entry(l, id)
    end
  end
  return tasks
end

local function first_after(from)
  local first = call('ZRANGEBYSCORE', LEASES, '(' .. decimal(from), '+inf', 'LIMIT', 0, 1, 'WITHSCORES')
  return first[1] and tonumber(first[2]) or 0
end

local f = call('HMGET', SHARD, 'swept', 'grace')
local swept, grace = tonumber(f[1] or '0'), tonumber(f[2] or '0')
local anything = call('EXISTS', LEASES, FORGET, IDLE) > 0
local standing = anything and call('ZCARD', LEASES) or 0
run_when_full()
if swept > 0 and now - swept > OUTAGE_AFTER and standing > 0 then
  grace = now + OUTAGE_GRACE
  call('HSET', SHARD, 'grace', decimal(grace))
end
call('HSET', SHARD, 'swept', decimal(now))
if grace > now and standing > 0 then
  local first = call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
  return { now, max(grace, tonumber(first[2])), 1, {} }
end
if not anything then return { now, 0, 0, {} } end
local tasks, next_at = {}, 0
if standing > 0 then
  clamp_deadlines()
  tasks = collect(tonumber(ARGV[1]))
end
forget_settled()
forget_idle_queues()
finish(true)
if standing > 0 then next_at = first_after(now) end
return { now, next_at, 0, tasks }
