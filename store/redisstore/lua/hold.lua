-- Changes the holds in shard 0, with the ends of the holds on queues, under a new version
-- of all holds, if they still have the caller's version (dispatch.Holds.PutHolds).
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     the caller's version, an id that is unique to this call, the limit of holds,
--          the number of changes; per change the key and the hold (JSON; '' = lifted);
--          per queue or pattern the end of its holds in ms ('' = no hold)
-- Returns  the new version, -1 = the holds have another version, -2 = too many
-- Cost     O(1) a hold
local from, by, limit, changes = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), 4 + 2 * ARGV[4]
local holds, shard = P .. 'holds', call('HMGET', SHARD, 'holds', 'holdsby')
local version, has, n = tonumber(shard[1] or 0), {}, call('HLEN', P .. 'holds')
if version ~= from then return shard[2] == by and version or -1 end
for i = 5, changes, 2 do
  local key, old = ARGV[i], has[ARGV[i]]
  if old == nil then old = call('HEXISTS', holds, key) == 1 end
  has[key] = ARGV[i + 1] ~= ''
  n = n + (has[key] and 1 or 0) - (old and 1 or 0)
end
if n > limit then return -2 end
for i = 5, #ARGV, 2 do
  local of, name, value = i <= changes and holds or P .. 'heldqueues', ARGV[i], ARGV[i + 1]
  if value == '' then call('HDEL', of, name) else call('HSET', of, name, value) end
end
version = max(from + 1, now)
call('HSET', SHARD, 'holds', decimal(version), 'holdsby', by)
return version
