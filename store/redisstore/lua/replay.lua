-- Returns the tasks that are still held by the grants of repeated client tokens in this
-- shard (dispatch.Claims.BeginPolls).
--
-- KEYS[1]  the shard key
-- ARGV     per poll: collector, client token, the holder's digest, call
-- Returns  now, and per poll: false, or the tasks still held
-- Cost     O(1) a task
--
-- uses: ids grant
local asks, out = {}, {}
for i = 1, #ARGV, 4 do
  asks[#asks + 1] = { collector = ARGV[i], token = ARGV[i + 1], holder = ARGV[i + 2], call = ARGV[i + 3] }
end
for i, found in ipairs(grants.known(asks)) do out[i] = found and grants.replay(asks[i], found) end
return { now, out }
