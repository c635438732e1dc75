-- What ends with time, removed a little with each sweep.
local FORGET_LIMIT = 100

-- Trims the sets of dead and canceled tasks whose time is over. The bodies are
-- gone by then: they were given the same end.
local function forget_settled()
  local left = FORGET_LIMIT
  for _, set in ipairs(call('ZRANGEBYSCORE', FORGET, '-inf', now, 'LIMIT', 0, 10)) do
    local kind, n = string.match(set, ':(l[cd]):(%d+)$')
    local l = get_lane(n)
    local over = left > 0 and call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, left) or {}
    if #over > 0 then
      call('ZREM', set, unpack(over))
      count(l.uid, kind == 'ld' and 'dead' or 'canceled', -#over)
      left = left - #over
    end
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
