-- Counts of one shard.
--
-- KEYS[1]  the shard key
-- ARGV     none
-- Returns  scheduled, ready, leased, done, dead, canceled, granted, settled,
--          expired, orphaned, dropped, queues, how far the most overdue lease is
--          past its deadline in ms, collectors
-- Cost     O(log n)
--
-- uses: base keys
local fields = { 'scheduled', 'ready', 'leased', 'done', 'dead', 'canceled', 'granted', 'settled', 'expired',
  'orphaned', 'dropped' }
local out = call('HMGET', SHARD, unpack(fields))
for i = 1, #fields do out[i] = tonumber(out[i] or '0') end
local first = call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
out[12] = call('ZCARD', QUEUES) - call('ZCOUNT', IDLE, '-inf', now)
out[13] = first[1] and max(now - tonumber(first[2]), 0) or 0
out[14] = call('ZCOUNT', P .. 'seen', '(' .. decimal(now - DAY), '+inf')
return out
