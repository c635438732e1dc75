-- Counts of one shard (dispatch.Store.Stats).
--
-- KEYS[1]  the shard key
-- ARGV     none
-- Returns  scheduled, ready, leased, done, dead, canceled, granted, settled,
--          expired, orphaned, dropped, queues, time since the deadline of the most
--          overdue lease in ms, collectors that are present, rest of the grace after an
--          outage in ms
-- Cost     O(log n); at most 100 leases, of 100 lanes, are read
--
-- flags: no-writes
-- dispatch.GoneAfter
local GONE_AFTER = 45000

local c = shard_counts()
local out = { c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.granted, c.settled, c.expired, c.orphaned, c.dropped }

-- Of renewed leases the index may have an earlier deadline than the record, and of
-- lanes an earlier one than that of any lease.
local LOOKS = 100
local oldest, looks = 0, 0
local function look(id, at)
  local h = call('GETRANGE', task_key(id), 0, AT.deadline + 4)
  if is_leased(h) then at = struct.unpack('>I6', h, AT.deadline) end
  oldest, looks = max(oldest, now - at), looks + 1
end

local first = call('ZRANGEBYSCORE', LEASES, '-inf', now, 'WITHSCORES', 'LIMIT', 0, LOOKS)
for i = 1, #first, 2 do
  local id, lane = split_member(first[i])
  if looks == LOOKS then break end
  if id then
    look(id, tonumber(first[i + 1]))
  else
    local due = call('ZRANGEBYSCORE', tasks_key(lane), decimal(LEASED_FROM), decimal(LEASED_FROM + now), 'LIMIT', 0, LOOKS - looks)
    for _, suffix in ipairs(due) do look(id_of(get_lane(lane), suffix), now) end
  end
end
out[12] = call('ZCARD', QUEUES) - call('ZCOUNT', IDLE, '-inf', now)
out[13] = oldest
out[14] = call('ZCOUNT', P .. 'seen', decimal(now - GONE_AFTER), '+inf')
out[15] = max(0, (tonumber(call('HGET', SHARD, 'grace')) or 0) - now)
return out
