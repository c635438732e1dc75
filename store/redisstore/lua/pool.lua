-- Pools: the queues that can be granted from, those that cannot be yet, and how many stand
-- in neither set, since no time is known at which they open.
pool.NOWHERE, pool.OPEN, pool.WAIT, pool.HELD, pool.FULL, pool.LATER = 0, 1, 2, 3, 4, 5
local KINDS = { [3] = 'held:', [4] = 'full:', [5] = 'later:' }
local NOWHERE, OPEN, WAIT = pool.NOWHERE, pool.OPEN, pool.WAIT

local moved -- parts of queues whose place is to be written
local changes -- by pool, what is to be written: members of its sets, and changes of its counts

function pool.begin() moved, changes = {}, {} end

-- Notes where a queue stands now; flush writes it.
function pool.move(a, stands, score)
  if a.stands == stands and a.score == score then return end
  local old = a.stands == OPEN and a.score or false
  a.stands, a.score, a.q.dirty = stands, score, true
  claim.moved(a, old)
  if not a.moved then a.moved, moved[#moved + 1] = true, a end
end

-- Notes where a queue stood and where it stands, to be written.
function pool.note(name, pool_name, was, stands, score)
  local c = changes[pool_name]
  if not c then
    c = { 0, 0, 0, 0, 0, unopen = {}, unwait = {}, open = {}, wait = {}, new = false, score = 0, text = '0' } -- counts by kind
    changes[pool_name] = c
  end
  if was == OPEN then
    if stands ~= OPEN then c.unopen[#c.unopen + 1] = name end
  elseif was == WAIT then
    if stands ~= WAIT then c.unwait[#c.unwait + 1] = name end
  elseif was == NOWHERE then c.new = true
  else c[was] = c[was] - 1 end
  if stands == OPEN or stands == WAIT then
    local set = stands == OPEN and c.open or c.wait
    local n = #set
    if score ~= c.score then c.score, c.text = score, decimal(score) end -- often the same as of the one before
    set[n + 1], set[n + 2] = c.text, name
  elseif stands ~= NOWHERE then c[stands] = c[stands] + 1 end
end

-- Writes where queues stand, of each pool all at once.
function pool.flush()
  for i = 1, #moved do
    local a = moved[i]
    pool.note(a.queue, a.pool, a.was, a.stands, a.score)
    a.moved, a.was = false, a.stands
  end
  if moved[1] then moved = {} end
  for name, c in pairs(changes) do
    if c.new then call('SADD', key.pools, name) end
    call_for_all('ZREM', key.pool_open(name), c.unopen)
    call_for_all('ZREM', key.pool_wait(name), c.unwait)
    call_for_all('ZADD', key.pool_open(name), c.open)
    call_for_all('ZADD', key.pool_wait(name), c.wait)
    for kind, prefix in pairs(KINDS) do
      if c[kind] ~= 0 then call('HINCRBY', key.closed, prefix .. name, c[kind]) end
    end
    changes[name] = nil
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
