-- Places a page of the queues that wait for a gate without an end, after the
-- rules have changed.
--
-- KEYS[1]  the shard key
-- ARGV     pool ('' = the first), how many of it stay and were looked at, limit
-- Returns  pool and position of the next page; pool '' = the end
-- Cost     O(log n) a queue; at most 100 queues
local pool, stay, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local pools = call('SMEMBERS', POOLS)
table.sort(pools, before)
for _, name in ipairs(pools) do
  if name == pool or (before(pool, name) and limit > 0) then
    if name ~= pool then pool, stay = name, 0 end
    local wait = pool_wait_key(name)
    local found = call('ZRANGEBYSCORE', wait, '+inf', '+inf', 'LIMIT', stay, limit)
    for _, queue in ipairs(found) do
      place_queue_everywhere(get_queue(queue), nil)
      if tonumber(call('ZSCORE', wait, queue) or nil) == INF then stay = stay + 1 end
    end
    limit = limit - #found
    if limit == 0 then break end
  end
end
finish(true)
if limit == 0 then return { pool, stay } end
return { '', 0 }
