-- Collectors and their sessions, kept in the home shard of the collector's id.
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
  call('ZREM', P .. 'colls', id)
  call('ZREM', P .. 'seen', id)
  call('ZREM', P .. 'ended', id)
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
    if not c then call('ZADD', P .. 'colls', 0, id) end
    if c and c[6] then call('ZREM', P .. 'ended', id) end
    c = { session, now, now, c ~= nil, '' }
  end
  c[3] = now
  if info and not c[6] then c[5] = info end
  if ended then c[6] = true end
  write_collector(id, c)
  if c[6] then call('ZREM', P .. 'seen', id) end
  call('ZADD', c[6] and P .. 'ended' or P .. 'seen', decimal(now), id)
  if c[4] then
    -- This shard grants the older session nothing from now on.
    call('SET', key.keep(id), session)
    expire_at(key.keep(id), now + DAY)
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

-- Records the beats of collectors (dispatch.Collectors.Beats).
--
-- ARGV     per beat: collector, session, info (JSON), 1 if it is the last (else 0)
-- Returns  flat, per beat: replaced, new session
-- Cost     O(log n) a beat
function scripts.beats()
  local out = {}
  for i = 1, #ARGV, 4 do
    local packed = call('GET', collector_key(ARGV[i]))
    out[#out + 1], out[#out + 2] = see(packed, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1')
  end
  return out
end

-- Reads collectors of this home shard, by id or a range of ids.
--
-- ARGV     'ids' and ids; or 'after', the id to begin after ('' = the first), limit
-- Returns  the last id read ('' = the end), and per known collector: id,
--          session, first, seen, info (JSON; '' = its session has sent no beat)
-- Cost     O(log n + limit)
-- flags: no-writes
function scripts.collectors()
  local ids, last, out, keys = {}, '', {}, {}
  if ARGV[1] == 'ids' then
    ids = args_from(2)
  else
    ids = call('ZRANGEBYLEX', P .. 'colls', ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
    if #ids == tonumber(ARGV[3]) then last = ids[#ids] end
  end
  for i, id in ipairs(ids) do keys[i] = collector_key(id) end
  for i, packed in ipairs(#ids > 0 and call('MGET', unpack(keys)) or {}) do
    local c = unpack_collector(packed)
    if c and c[3] + DAY > now then out[#out + 1] = { ids[i], c[1], decimal(c[2]), decimal(c[3]), c[5] } end
  end
  return { last, out }
end

-- Removes collectors of this home shard that were not seen since an instant
-- (dispatch.Collectors.Forget). Those that were silent for a day count as gone already.
--
-- ARGV     instant in ms, limit; or instant, 0, and the only ones to remove
-- Returns  how many were removed
-- Cost     O(log n) a collector
function scripts.forget()
  local named = 0
  for _, id in ipairs(args_from(3)) do
    local c = unpack_collector(call('GET', collector_key(id)))
    if c and c[3] < tonumber(ARGV[1]) then
      forget_collector(id)
      if c[3] + DAY > now then named = named + 1 end
    end
  end
  if ARGV[3] then return named end
  local gone, sets, left = decimal(now - DAY), { P .. 'seen', P .. 'ended' }, tonumber(ARGV[2])
  for _, set in ipairs(sets) do
    for _, id in ipairs(call('ZRANGEBYSCORE', set, '-inf', gone, 'LIMIT', 0, 1000)) do forget_collector(id) end
  end
  for _, set in ipairs(sets) do
    local ids = call('ZRANGEBYSCORE', set, '-inf', '(' .. ARGV[1], 'LIMIT', 0, left)
    for _, id in ipairs(ids) do forget_collector(id) end
    left = left - #ids
  end
  return tonumber(ARGV[2]) - left
end

collector.see, collector.key, collector.unpack, collector.was_replaced, collector.session_ended = see, collector_key, unpack_collector, was_replaced, session_ended
