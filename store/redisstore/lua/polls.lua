-- Records polls in the collectors' home shard (dispatch.Claims.BeginPolls).
--
-- KEYS[1]  the shard key
-- ARGV     whether the store has several shards (0, 1): 1 = record only that the client
--          token was polled, 0 = read its grant; per poll: collector, session, client
--          token, call, the holder's digest
-- Returns  now, and per poll: replaced, new session, used (or: polled before),
--          tasks still held
-- Cost     O(1) a poll, O(1) a task
--
-- uses: ids grant collector
local several, out, keys, asks, digests = ARGV[1] == '1', {}, {}, {}, {}
for i = 2, #ARGV, 5 do
  local n = #asks + 1
  keys[n], digests[n] = collector_key(ARGV[i]), ARGV[i + 4]
  asks[n] = { collector = ARGV[i], session = ARGV[i + 1], token = ARGV[i + 2], call = ARGV[i + 3], holder = ARGV[i + 4] }
end
local collectors, tokens, met = call('MGET', unpack(keys)), several and noted.polled.known(digests) or grants.known(asks), {}
local polled, again = {}, {}
for i, a in ipairs(asks) do
  local packed = met[a.collector] and call('GET', keys[i]) or collectors[i]
  local replaced, fresh = see(packed, a.collector, a.session, nil)
  local used, held = 0, {}
  met[a.collector] = true
  if replaced == 0 and several then
    used = (tokens[i] or again[a.holder]) and 1 or 0
    polled[#polled + 1], again[a.holder] = a.holder, true
  elseif replaced == 0 and tokens[i] then
    used, held = 1, grants.replay(a, tokens[i])
  end
  out[i] = { replaced, fresh, used, held }
end
if #polled > 0 then noted.polled.note(polled) end
return { now, out }
