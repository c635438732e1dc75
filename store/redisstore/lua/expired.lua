-- One pass over the lease index (dispatch.Leases.Expired): expired leases, tasks that
-- were found READY under a lock that has ended, and records to forget. The score of a
-- lane in the index is at most its first deadline; the pass updates it.
--
-- KEYS[1]  the shard key
-- ARGV     limit (at most 200)
-- Returns  now, when to sweep next (0 = no leases), grace, tasks
-- Cost     O(log n) an entry; at most 500 entries, of 500 lanes, and 500 lanes
--          ahead, 200 leases and about 4 MiB of them, and 100 of each kind to forget
--
-- uses: forget look deadlines
local OUTAGE_AFTER, OUTAGE_GRACE = 5000, 30000

-- Looks at the entries up to now; gives those of the leases that have expired, and
-- how many looks are left, nil when there is more to look at.
local function collect(limit)
  local due = call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, MAX_LOOKS)
  local expired, looks, i = {}, MAX_LOOKS, 1
  while due[i] and looks > 0 and #expired < limit do
    local entries
    entries, i = next_entries(due, i, looks)
    for _, e in ipairs(entries) do
      if #expired == limit then
        stays(e)
      elseif look_at(e) then
        stays(e)
        expired[#expired + 1] = e.id
      end
    end
    mend_lanes()
    looks = looks - #entries
  end
  local more = looks == 0 or #expired == limit or #due == MAX_LOOKS
  return expired, not more and looks or nil
end

local read_tasks
do
  local READ_AT_ONCE, READ_BYTES = 25, 4194304

  -- The tasks, those of a lane that follow each other as one list; and whether some
  -- were left, since they are long.
  function read_tasks(ids)
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
        list[n + 1], list[n + 2] = suffix_of(ids[from + i - 1]), raw
        bytes = bytes + #raw
      end
    end
    return tasks, false
  end
end

-- at each call
local f = call('HMGET', SHARD, 'swept', 'grace', 'highest', 'fence', 'walk')
local swept, grace, walk = tonumber(f[1] or '0'), tonumber(f[2] or '0'), f[5] or '0'
read_highest(f[3], f[4])
local seen = highest
local anything = call('EXISTS', LEASES, FORGET, IDLE) > 0
local late = swept > 0 and now - swept > OUTAGE_AFTER
local first = (late or grace > now) and first_entry()
if late and first or grace > now + OUTAGE_GRACE then -- further ahead, the clock was stepped back
  grace = now + OUTAGE_GRACE
  call('HSET', SHARD, 'grace', decimal(grace))
end
call('HSET', SHARD, 'swept', decimal(now), 'highest', decimal(highest))
forget_noted(swept)
if grace > now and first then return { now, max(grace, first), 1, {} } end
if not anything then return { now, 0, 0, {} } end
clamp_deadlines(walk)
local ids, looks = collect(tonumber(ARGV[1]))
local tasks, more = read_tasks(ids)
more = more or not looks
if not more then look_ahead(looks) end
if highest > seen then call('HSET', SHARD, 'highest', decimal(highest)) end
forget_settled()
forget_idle_queues()
finish(true)
return { now, more and now or next_deadline(), 0, tasks }
