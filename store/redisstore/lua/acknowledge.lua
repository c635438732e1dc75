-- Calls that producers and collectors rely on once they are answered: submits, reports,
-- changes of sources. Each dispatcher numbers the tasks of its calls of a shard, and the shard
-- keeps the highest number of each. A failover that lost some is found by the next call: then the
-- dispatcher had an answer to a higher number than the shard has. The write is also what makes
-- a repeated call wait for replicas (--ack-replicas), when it has nothing else to write.
local MOST = 1000 -- dispatchers that are kept, gone ones too

-- Takes the last argument: the dispatcher, the number of this call's last task, the highest number
-- that was answered. Returns how many answered tasks are lost.
function acknowledge()
  local by, number, answered = parse('>c8I6I6', table.remove(ARGV))
  local kept = tonumber(call('HGET', key.acked, by) or nil)
  local lost = kept and max(answered - kept, 0) or 0
  if lost > 0 then call('HINCRBY', key.acked, 'lost', lost) end
  if call('HSET', key.acked, by, decimal(max(number, kept or 0))) == 1 and call('HLEN', key.acked) > MOST then
    local sum = call('HGET', key.acked, 'lost')
    call('DEL', key.acked)
    if sum then call('HSET', key.acked, 'lost', sum) end
  end
  return lost
end
