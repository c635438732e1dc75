-- One look at the lease index (dispatch.Leases.Expired): what has run out, what
-- was found READY under a lock that has ended, and what is to be forgotten.
--
-- KEYS[1]  the shard key
-- ARGV     limit (at most 200)
-- Returns  now, when to look next (0 = no lease stands), grace, tasks
-- Cost     O(log n) an entry; at most 500 entries, 200 leases and about 4 MiB
--          of them, and 100 of each kind to forget
--
-- uses: forget
local OUTAGE_AFTER, OUTAGE_GRACE, MAX_LEASE = 5000, 30000, 3600000
local MAX_LOOKS, AHEAD = 500, 500 -- dispatch.MaxSweepLooks, dispatch.SweepAhead
local READ_AT_ONCE, READ_BYTES = 25, 4194304

-- Members are "<id>:<lane>".
local function id_in(member) return string.sub(member, 1, string.find(member, ':', 1, true) - 1) end
local function lane_in(member) return get_lane(string.sub(member, string.find(member, ':', 1, true) + 1)) end

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
    local id = id_in(member)
    local r, ttl = read_record(call('GET', task_key(id))), call('PTTL', lock_key(id))
    local at = now + min(max(ttl, 0), MAX_LEASE)
    if r and r.state == LEASED then
      at = min(at, now + r.duration)
      call('SETRANGE', task_key(id), AT.deadline - 1, struct.pack('>I6', at))
    end
    if ttl > 0 then call('PEXPIREAT', lock_key(id), decimal(at)) end
    call('ZADD', LEASES, at, member)
  end
end

-- The state of an entry's record, 0 for none, and the deadline of its lease.
local function peek(id)
  local h = call('GETRANGE', task_key(id), 0, HEADER - 1)
  if #h < HEADER then return 0, 0 end
  if is_leased(h) then return LEASED, (struct.unpack('>I6', h, AT.deadline)) end
  return string.byte(h, AT.state), 0
end

-- The deadlines of renewed leases, by which the index is brought up to date.
local renewed

local function note_renewed(deadline, member)
  renewed[#renewed + 1], renewed[#renewed + 2] = deadline, member
end

-- Looks at the entries up to now; gives those of the leases that have expired, and
-- how many it looked at.
local function collect(limit)
  local expired, looks = {}, 0
  for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, MAX_LOOKS)) do
    if #expired == limit then break end
    looks = looks + 1
    local id = id_in(member)
    local state, deadline = peek(id)
    if state == LEASED and deadline > now then
      note_renewed(deadline, member)
    elseif state == LEASED then
      expired[#expired + 1] = id
    elseif state == WAITING then
      look_at_orphan(lane_in(member), id, read_record(call('GET', task_key(id))), member)
    else
      call('ZREM', LEASES, member)
      drop_entry(lane_in(member), id)
    end
  end
  return expired, looks
end

-- The tasks, those of a lane that follow each other as one list; and whether some
-- were left, since they are long.
local function read_tasks(ids)
  local tasks, bytes, last = {}, 0, nil
  for from = 1, #ids, READ_AT_ONCE do
    if bytes > READ_BYTES then return tasks, true end
    local keys = {}
    for i = from, min(from + READ_AT_ONCE - 1, #ids) do keys[#keys + 1] = task_key(ids[i]) end
    for i, raw in ipairs(call('MGET', unpack(keys))) do
      local lane = record_lane(raw)
      if lane ~= last then
        last, tasks[#tasks + 1] = lane, begin_tasks(get_lane(lane))
      end
      local list = tasks[#tasks]
      local n = #list
      list[n + 1], list[n + 2] = ids[from + i - 1], raw
      bytes = bytes + #raw
    end
  end
  return tasks, false
end

-- Looks for renewed leases among the entries soon to come, so that the next sweep
-- need not come for them.
local function look_ahead(looks)
  local soon = call('ZRANGEBYSCORE', LEASES, '(' .. decimal(now), now + AHEAD, 'WITHSCORES', 'LIMIT', 0, looks)
  for i = 1, #soon, 2 do
    local state, deadline = peek(id_in(soon[i]))
    if state == LEASED and deadline > tonumber(soon[i + 1]) then note_renewed(deadline, soon[i]) end
  end
end

local function first_after(from)
  local first = call('ZRANGEBYSCORE', LEASES, '(' .. decimal(from), '+inf', 'LIMIT', 0, 1, 'WITHSCORES')
  return first[1] and tonumber(first[2]) or 0
end

local f = call('HMGET', SHARD, 'swept', 'grace')
local swept, grace = tonumber(f[1] or '0'), tonumber(f[2] or '0')
local anything = call('EXISTS', LEASES, FORGET, IDLE) > 0
local standing = anything and call('ZCARD', LEASES) or 0
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
local tasks, next_at, more = {}, 0, false
renewed = {}
if standing > 0 then
  local limit = tonumber(ARGV[1])
  clamp_deadlines()
  local ids, looks = collect(limit)
  tasks, more = read_tasks(ids)
  more = more or looks == MAX_LOOKS or #ids == limit
  if not more then look_ahead(MAX_LOOKS - looks) end
  call_for_all('ZADD', LEASES, renewed)
end
forget_settled()
forget_idle_queues()
finish(true)
if more then next_at = now elseif standing > 0 then next_at = first_after(now) end
return { now, next_at, 0, tasks }
