-- Reads the holds in shard 0 (dispatch.Holds.Holds).
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     the version that the caller has
-- Returns  now, their version, and each of them (JSON); no holds if the caller has that version
-- Cost     O(holds)
--
-- flags: no-writes
local version = call('HGET', SHARD, 'holds') or '0'
return { now, tonumber(version), version ~= ARGV[1] and call('HVALS', P .. 'holds') or {} }
