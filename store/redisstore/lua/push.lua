-- Stores the gate of a source in the shard, and reschedules a page of its lanes
-- (dispatch.Sources.PushSource).
--
-- KEYS[1]  the shard key
-- ARGV     page: the number of the last lane placed, 0 = none; limit; a gate
-- Returns  the next page, 0 = the end
-- Cost     O(log n) a lane; at most 100 lanes
--
-- uses: gate
local page, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local s, version = take_gate(3)
if s.known and s.version > version then return 0 end
local found = call('ZRANGEBYSCORE', lanes_key(s.uid), '(' .. decimal(page), '+inf', 'LIMIT', 0, limit, 'WITHSCORES')
for i = 2, #found, 2 do touch(get_lane(found[i])) end
finish(true)
if #found < 2 * limit then return 0 end
return tonumber(found[#found])
