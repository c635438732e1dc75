-- Answers repeated client tokens with what is still held of their grants in this
-- shard.
--
-- KEYS[1]  the shard key
-- ARGV     per poll: collector, client token, the holder's digest, call
-- Returns  now, and per poll: false, or the tasks still held
-- Cost     O(1) a task
--
-- uses: ids grant
local out = {}
for i = 1, #ARGV, 4 do
  local key = grant_key(ARGV[i] .. '/' .. ARGV[i + 1])
  out[#out + 1] = grants.replay(key, call('GET', key), ARGV[i + 2], ARGV[i + 3]) or false
end
return { now, out }
