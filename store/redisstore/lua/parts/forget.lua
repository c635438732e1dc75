-- What ends with time, removed a little with each sweep.
local FORGET_LIMIT = 100
local MAX_STEPS = 1000 -- a week: what is from before a longer pause is among the first
local MAX_REMEMBER = 400 * DAY -- dispatch.MaxRemember

-- Takes a lane of a deleted source that holds nothing off the indexes. DONE
-- records may still name it, and it its source: those end after the last of them.
local function drop_lane(l)
  if not get_source(l.uid).deleted then return end
  flush_moves()
  if call('EXISTS', tasks_key(l.name), dead_key(l.name), canceled_key(l.name)) > 0 then return end
  call('ZREM', lanes_key(l.uid), l.queue)
  call('ZREM', queue_lanes_key(l.queue), l.n)
  call('PEXPIRE', lane_key(l.name), MAX_REMEMBER)
  if call('EXISTS', lanes_key(l.uid)) == 0 then call('PEXPIRE', source_key(l.uid), MAX_REMEMBER) end
end

-- Trims at most limit of a set of dead or canceled tasks whose time is over. The
-- bodies are gone by then: they were given the same end.
local function trim_settled(set, limit)
  local kind, n = string.match(set, ':(l[cd]):(%d+)$')
  local over = call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, limit)
  if #over > 0 then
    call('ZREM', set, unpack(over))
    count(get_lane(n).uid, kind == 'ld' and 'dead' or 'canceled', -#over)
    drop_lane(get_lane(n))
  end
  return #over
end

local function forget_settled()
  local left = FORGET_LIMIT
  for _, set in ipairs(call('ZRANGEBYSCORE', FORGET, '-inf', now, 'LIMIT', 0, FORGET_LIMIT)) do
    if left == 0 then return end
    left = left - trim_settled(set, left)
    local first = call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if first[1] and tonumber(first[2]) < INF then call('ZADD', FORGET, first[2], set) else call('ZREM', FORGET, set) end
  end
end

-- Forgets the client tokens that were noted before the last step, given when leases were
-- last swept.
local function forget_noted(swept)
  local keys = {}
  for _, sets in pairs(noted) do
    local first = sets.step(swept) - 1
    for at = first, min(sets.step(now) - 2, first + MAX_STEPS) do keys[#keys + 1] = sets.key(at) end
  end
  if swept > 0 and #keys > 0 then call('UNLINK', unpack(keys)) end
end

local function forget_idle_queues()
  for _, name in ipairs(call('ZRANGEBYSCORE', IDLE, '-inf', now, 'LIMIT', 0, FORGET_LIMIT)) do
    get_queue(name) -- reading one that is over deletes it
    call('ZREM', IDLE, name)
  end
end
