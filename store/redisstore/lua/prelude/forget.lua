-- What ends with time, removed a little with each sweep.
local FORGET_LIMIT = 100

-- Trims at most limit of a set of dead or canceled tasks whose time is over. The
-- bodies are gone by then: they were given the same end.
local function trim_settled(set, limit)
  local kind, n = string.match(set, ':(l[cd]):(%d+)$')
  local over = call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, limit)
  if #over > 0 then
    call('ZREM', set, unpack(over))
    count(get_lane(n).uid, kind == 'ld' and 'dead' or 'canceled', -#over)
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

local function forget_idle_queues()
  for _, name in ipairs(call('ZRANGEBYSCORE', IDLE, '-inf', now, 'LIMIT', 0, FORGET_LIMIT)) do
    get_queue(name) -- reading one that is over deletes it
    call('ZREM', IDLE, name)
  end
end
