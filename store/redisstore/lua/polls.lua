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
local note_for, out, keys, asks = tonumber(ARGV[1]), {}, {}, {}
for i = 2, #ARGV, 5 do
  local n = #asks + 1
  keys[n] = collector_key(ARGV[i])
  asks[n] = { collector = ARGV[i], session = ARGV[i + 1], token = ARGV[i + 2], call = ARGV[i + 3], holder = ARGV[i + 4] }
end
local collectors, tokens, met = call('MGET', unpack(keys)), note_for == 0 and grants.known(asks), {}
for i, a in ipairs(asks) do
  local packed = met[a.collector] and call('GET', keys[i]) or collectors[i]
  local replaced, fresh = see(packed, a.collector, a.session, nil)
  local used, held = 0, {}
  met[a.collector] = true
  if replaced == 0 and note_for == 0 then
    if tokens[i] then used, held = 1, grants.replay(a, tokens[i]) end
  elseif replaced == 0 then
    local key = P .. 'poll:' .. a.collector .. '/' .. a.token
    if not call('SET', key, '', 'NX', 'PX', note_for) then used = 1 end
  end
  out[i] = { replaced, fresh, used, held }
end
return { now, out }
