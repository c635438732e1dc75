-- Notes polls at the collectors' home shard (dispatch.Claims.BeginPolls).
--
-- KEYS[1]  the shard key
-- ARGV     how long a client token is noted in ms (0 = look at its grant here,
--          for a store of one shard); per poll: collector, session, client
--          token, call, the holder's digest
-- Returns  now, and per poll: replaced, new session, used (or: noted before),
--          tasks still held
-- Cost     O(1) a poll, O(1) a task
--
-- uses: ids grant collector
local note_for, out, keys, step = tonumber(ARGV[1]), {}, {}, 1
if note_for == 0 then step = 2 end
for i = 2, #ARGV, 5 do
  keys[#keys + 1] = collector_key(ARGV[i])
  if note_for == 0 then keys[#keys + 1] = grant_key(ARGV[i] .. '/' .. ARGV[i + 2]) end
end
local found, k, met = call('MGET', unpack(keys)), 1, {}
for i = 2, #ARGV, 5 do
  local collector, token = ARGV[i], ARGV[i + 2]
  local packed = met[collector] and call('GET', collector_key(collector)) or found[k]
  local replaced, fresh = see(packed, collector, ARGV[i + 1], nil)
  local used, held = 0, {}
  met[collector] = true
  if replaced == 0 and note_for == 0 then
    local replay = grants.replay(keys[k + 1], found[k + 1], ARGV[i + 4], ARGV[i + 3])
    if replay then used, held = 1, replay end
  elseif replaced == 0 then
    local key = P .. 'poll:' .. collector .. '/' .. token
    if not call('SET', key, '', 'NX', 'PX', note_for) then used = 1 end
  end
  out[#out + 1] = { replaced, fresh, used, held }
  k = k + step
end
return { now, out }
