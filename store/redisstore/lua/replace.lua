-- Places a page of the queues that wait, after rules or holds have changed: those that
-- wait for a gate without an end, and once after each change those whose delay or hold
-- lasts, which may end sooner now.
--
-- KEYS[1]  the shard key
-- ARGV     limit; the version of the settings that the shard comes to, '0' = it has come
--          there before, '' = to be found out; pool ('' = the first); in it the score
--          and the name of the queue that was looked at last ('' = none)
-- Returns  version, pool, score and name for the next page; pool '' = the end
-- Cost     O(log n) a queue; at most 100 queues placed, and 500 looked at
--
-- uses: rank
local limit, looks, version = tonumber(ARGV[1]), 500, ARGV[2]
local pool, score, last = ARGV[3], ARGV[4], ARGV[5]
if version == '' then
  version = decimal(settings_version())
  if call('HGET', SHARD, 'placed') == version then version = '0' end
end

local function is_delayed(queue)
  local found = call('GETRANGE', queue_key(queue), 0, 15)
  if #found < 16 then return false end
  local next_grant, held = struct.unpack('>dd', found)
  return max(next_grant, held) > now
end

local function place_some(wait)
  local rank = first_rank(wait, version == '0' and '+inf' or decimal(now + 1), score, last)
  local found = call('ZRANGE', wait, rank, rank + looks - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if limit == 0 then return end
    score, last, looks = found[i + 1], found[i], looks - 1
    if tonumber(score) == INF or is_delayed(last) then
      place_queue_everywhere(get_queue(last), nil)
      limit = limit - 1
    end
  end
end

local pools = call('SMEMBERS', POOLS)
table.sort(pools, before)
for _, name in ipairs(pools) do
  if limit > 0 and looks > 0 and not before(name, pool) then
    if name ~= pool then pool, score, last = name, '', '' end
    place_some(pool_wait_key(name))
  end
end
local ended = limit > 0 and looks > 0
if ended and version ~= '0' and version == decimal(settings_version()) then call('HSET', SHARD, 'placed', version) end
finish(true)
if ended then return { version, '', '', '' } end
return { version, pool, score, last }
