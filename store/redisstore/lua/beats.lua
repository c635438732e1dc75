-- Records what collectors tell of themselves (dispatch.Collectors.Beats).
--
-- KEYS[1]  the shard key
-- ARGV     per beat: collector, session, info (JSON)
-- Returns  flat, per beat: replaced, new session
-- Cost     O(log n) a beat
--
-- uses: collector
local out = {}
for i = 1, #ARGV, 3 do
  local replaced, fresh = see(call('GET', collector_key(ARGV[i])), ARGV[i], ARGV[i + 1], ARGV[i + 2])
  out[#out + 1] = replaced
  out[#out + 1] = fresh
end
return out
