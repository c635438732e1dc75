-- Collectors and their sessions, kept in the home shard of the collector's id.
local COLLECTORS, SEEN
local MAX_REPLACED = 100

local function collector_key(id) return P .. 'coll:' .. id end
local function replaced_key(id) return P .. 'old:' .. id end

local function forget_collector(id)
  call('DEL', collector_key(id), replaced_key(id))
  call('ZREM', COLLECTORS, id)
  call('ZREM', SEEN, id)
end

-- Notes that the session was seen: whether it was replaced, and whether it has
-- replaced another that was not ended here yet. info, when given, is what the
-- collector tells.
local function see(id, session, info)
  local key = collector_key(id)
  local f = call('HMGET', key, 'session', 'seen', 'fresh')
  local current = f[1]
  if current and tonumber(f[2]) + DAY <= now then
    forget_collector(id)
    current, f[3] = nil, nil
  end
  if current ~= session and call('ZSCORE', replaced_key(id), session) then return 1, 0 end
  local replaced = current and current ~= session
  if replaced then
    call('ZADD', replaced_key(id), now, current)
    call('ZREMRANGEBYRANK', replaced_key(id), 0, -MAX_REPLACED - 1)
  end
  if current ~= session then
    call('HSET', key, 'session', session, 'first', decimal(now), 'info', '')
    call('ZADD', COLLECTORS, 0, id)
  end
  if replaced then call('HSET', key, 'fresh', '1') end
  call('HSET', key, 'seen', decimal(now))
  if info then call('HSET', key, 'info', info) end
  call('ZADD', SEEN, decimal(now), id)
  local fresh = replaced or f[3] == '1'
  if fresh then
    -- This shard grants the older session nothing from now on.
    call('SET', P .. 'keep:' .. id, session)
    expire_at(P .. 'keep:' .. id, now + DAY)
  end
  return 0, fresh and 1 or 0
end

-- All sessions but this one were ended here: the session is no longer new.
local function session_ended(id, keep)
  if call('HGET', collector_key(id), 'session') == keep then call('HDEL', collector_key(id), 'fresh') end
end

-- at each call
if new_shard then COLLECTORS, SEEN = P .. 'colls', P .. 'seen' end
