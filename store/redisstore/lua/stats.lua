-- Counts of one shard.
--
-- KEYS[1]  the shard key
-- ARGV     none
-- Returns  scheduled, ready, leased, done, dead, canceled, granted, settled,
--          expired, orphaned, dropped, queues, how far the most overdue lease is
--          past its deadline in ms, collectors
-- Cost     O(log n); at most 100 leases are looked at
--
-- flags: no-writes
local fields = { 'scheduled', 'ready', 'leased', 'done', 'dead', 'canceled', 'granted', 'settled', 'expired',
  'orphaned', 'dropped' }
local out = call('HMGET', SHARD, unpack(fields))
for i = 1, #fields do out[i] = tonumber(out[i] or '0') end

-- Of renewed leases the index may have an earlier deadline than the record.
local oldest, first = 0, call('ZRANGEBYSCORE', LEASES, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 100)
for i = 1, #first, 2 do
  local at = tonumber(first[i + 1])
  local h = call('GETRANGE', task_key(string.match(first[i], '^(.*):')), 0, AT.deadline + 4)
  if is_leased(h) then at = struct.unpack('>I6', h, AT.deadline) end
  oldest = max(oldest, now - at)
end
out[12] = call('ZCARD', QUEUES) - call('ZCOUNT', IDLE, '-inf', now)
out[13] = oldest
out[14] = call('ZCOUNT', P .. 'seen', '(' .. decimal(now - DAY), '+inf')
return out
