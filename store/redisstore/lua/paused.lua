-- Reads the pauses of pools that hold.
--
-- KEYS[1]  the shard key
-- ARGV     none
-- Returns  flat, of each, in no order: the pool, its pause (JSON)
-- Cost     O(pauses)
--
-- flags: no-writes
local out, paused = {}, call('HGETALL', P .. 'paused')
for i = 1, #paused, 2 do
  if tonumber(call('HGET', SHARD, 'pause:' .. paused[i]) or '0') > now then
    out[#out + 1] = paused[i]
    out[#out + 1] = paused[i + 1]
  end
end
return out
