-- Records the beats of collectors (dispatch.Collectors.Beats).
--
-- KEYS[1]  the shard key
-- ARGV     per beat: collector, session, info (JSON), 1 if it is the last (else 0)
-- Returns  flat, per beat: replaced, new session
-- Cost     O(log n) a beat
--
-- uses: collector
local out = {}
for i = 1, #ARGV, 4 do
  local packed = call('GET', collector_key(ARGV[i]))
  local replaced, fresh = see(packed, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1')
  out[#out + 1] = replaced
  out[#out + 1] = fresh
end
return out
