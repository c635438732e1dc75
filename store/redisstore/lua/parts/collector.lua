-- Collectors and their sessions, kept in the home shard of the collector's id.
local COLLECTORS
-- By when they were last seen, those that have ended apart.
local SEEN, ENDED
local MAX_REPLACED = 100

-- dispatch.PollNoted: one of many polls costs a read alone.
local POLL_NOTED = 1000

local function collector_key(id) return P .. 'coll:' .. id end
local function replaced_key(id) return P .. 'old:' .. id end

-- A collector's record: session, first, seen, whether it is fresh, info, and true where
-- that was its last.
local function unpack_collector(packed) return packed and cmsgpack.unpack(packed) or nil end
local function write_collector(id, c) call('SET', collector_key(id), cmsgpack.pack(c)) end

local function forget_collector(id)
  call('DEL', collector_key(id), replaced_key(id))
  call('ZREM', COLLECTORS, id)
  call('ZREM', SEEN, id)
  call('ZREM', ENDED, id)
end

-- Records that the session was seen, given the packed record of its collector. Returns whether it was replaced, and
-- whether it has replaced another one that is not ended here. info, when given, is what the collector tells, and ended
-- that it is the session's last: what comes after it changes nothing of it, and of a session that is not the current
-- one nothing at all.
local function see(packed, id, session, info, ended)
  local c = unpack_collector(packed)
  if c and c[3] + DAY <= now then
    forget_collector(id)
    c = nil
  end
  if c and c[1] == session and not c[4] and not info and now >= c[3] and now < c[3] + POLL_NOTED then return 0, 0 end
  local other = (not c or c[1] ~= session)
  if other and call('ZSCORE', replaced_key(id), session) then return 1, 0 end
  if c and other and ended then return 0, 0 end
  if c and other then
    call('ZADD', replaced_key(id), now, c[1])
    call('ZREMRANGEBYRANK', replaced_key(id), 0, -MAX_REPLACED - 1)
  end
  if other then
    if not c then call('ZADD', COLLECTORS, 0, id) end
    if c and c[6] then call('ZREM', ENDED, id) end
    c = { session, now, now, c ~= nil, '' }
  end
  c[3] = now
  if info and not c[6] then c[5] = info end
  if ended then c[6] = true end
  write_collector(id, c)
  if c[6] then call('ZREM', SEEN, id) end
  call('ZADD', c[6] and ENDED or SEEN, decimal(now), id)
  if c[4] then
    -- This shard grants the older session nothing from now on.
    call('SET', P .. 'keep:' .. id, session)
    expire_at(P .. 'keep:' .. id, now + DAY)
  end
  return 0, c[4] and 1 or 0
end

-- Whether the session is no longer the current one of its collector. Only the collector's home shard knows it.
local function was_replaced(id, session)
  local c = unpack_collector(call('GET', collector_key(id)))
  return c and c[3] + DAY > now and c[1] ~= session and call('ZSCORE', replaced_key(id), session)
end

-- All sessions but this one were ended here: the session is no longer new.
local function session_ended(id, keep)
  local c = unpack_collector(call('GET', collector_key(id)))
  if not c or c[1] ~= keep or not c[4] then return end
  c[4] = false
  write_collector(id, c)
end

-- at each call
COLLECTORS, SEEN, ENDED = P .. 'colls', P .. 'seen', P .. 'ended'
