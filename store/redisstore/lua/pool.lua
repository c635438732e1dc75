-- Pools: the queues that can be granted from, those that cannot be yet, and how many stand
-- in neither set, since no time is known at which they open.
pool.NOWHERE, pool.OPEN, pool.WAIT, pool.HELD, pool.FULL, pool.LATER = 0, 1, 2, 3, 4, 5
local KINDS = { [3] = 'held:', [4] = 'full:', [5] = 'later:' }
local OPEN, WAIT = pool.OPEN, pool.WAIT

local moved -- parts of queues whose place is to be written

function pool.begin() moved = {} end

-- Notes where a queue stands now; flush writes it.
function pool.move(a, stands, score)
  if a.stands == stands and a.score == score then return end
  local old = a.stands == OPEN and a.score or false
  a.stands, a.score, a.q.dirty = stands, score, true
  claim.moved(a, old)
  if not a.moved then a.moved, moved[#moved + 1] = true, a end
end

-- Notes where a queue stands whose value is written as such.
function pool.note(a) moved[#moved + 1] = a end

-- Writes where queues stand, of each pool all at once.
function pool.flush()
  if not moved[1] then return end
  local all = { open = {}, wait = {}, unopen = {}, unwait = {}, named = {} }
  local counts = {}
  for i = 1, #moved do
    local a = moved[i]
    a.moved = false
    if a.was == OPEN and a.stands ~= OPEN then add_to(all.unopen, a.pool, a.queue) end
    if a.was == WAIT and a.stands ~= WAIT then add_to(all.unwait, a.pool, a.queue) end
    if a.stands == OPEN then add_to(all.open, a.pool, decimal(a.score), a.queue) end
    if a.stands == WAIT then add_to(all.wait, a.pool, decimal(a.score), a.queue) end
    if a.was == pool.NOWHERE then all.named[a.pool] = true end
    local from, to = KINDS[a.was], KINDS[a.stands]
    if from then counts[from .. a.pool] = (counts[from .. a.pool] or 0) - 1 end
    if to then counts[to .. a.pool] = (counts[to .. a.pool] or 0) + 1 end
    a.was = a.stands
  end
  moved = {}
  for name in pairs(all.named) do call('SADD', key.pools, name) end
  for name, queues in pairs(all.unopen) do call_for_all('ZREM', key.pool_open(name), queues) end
  for name, queues in pairs(all.unwait) do call_for_all('ZREM', key.pool_wait(name), queues) end
  for name, queues in pairs(all.open) do call_for_all('ZADD', key.pool_open(name), queues) end
  for name, queues in pairs(all.wait) do call_for_all('ZADD', key.pool_wait(name), queues) end
  for field, n in pairs(counts) do
    if n ~= 0 then call('HINCRBY', key.closed, field, n) end
  end
end

-- How many queues of the pool stand in neither set, by kind.
function pool.closed(name)
  local f = call('HMGET', key.closed, 'held:' .. name, 'full:' .. name, 'later:' .. name)
  return tonumber(f[1] or 0), tonumber(f[2] or 0), tonumber(f[3] or 0)
end

-- Reads pools of a shard (dispatch.Queues.ListPools).
--
-- ARGV     a pool ('' = all), the pool to begin after ('' = the first), limit
-- Returns  flat, ascending by name, per pool that has queues with waiting tasks: name,
--          queues in pool open and those due in pool wait, the others that wait
-- Cost     O(n log n) in pools
-- flags: no-writes
function scripts.pools()
  local names, out = ARGV[1] ~= '' and { ARGV[1] } or call('SMEMBERS', key.pools), {}
  sort(names, before)
  for _, name in ipairs(names) do
    if before(ARGV[2], name) and #out < 3 * tonumber(ARGV[3]) then
      local due, held, full, later = call('ZCOUNT', key.pool_wait(name), '-inf', now), pool.closed(name)
      local open, waiting = call('ZCARD', key.pool_open(name)) + due, call('ZCARD', key.pool_wait(name)) - due + held + full + later
      local n = #out
      if open + waiting > 0 then out[n + 1], out[n + 2], out[n + 3] = name, open, waiting end
    end
  end
  return out
end
