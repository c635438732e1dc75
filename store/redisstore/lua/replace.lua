-- Places a page of the queues that wait, after rules or holds have changed: those that
-- wait for a gate without an end, and once after each change those that wait longer than
-- their lanes do, for a gate or hold that may end at another time now.
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

local function place_some(wait)
  local rank = first_rank(wait, version == '0' and '+inf' or decimal(now + 1), score, last)
  local found, names = call('ZRANGE', wait, rank, rank + (version == '0' and min(limit, looks) or looks) - 1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do names[#names + 1] = found[i] end
  read_all(nil, names)
  for i, name in ipairs(names) do
    if limit == 0 then return end
    score, last, looks = found[2 * i], name, looks - 1
    local q = get_queue(name)
    local a = part(q, pool)
    if tonumber(score) == INF or a.opens > 0 or tonumber(score) > (placing.first_waiting(a) or INF) then
      place_queue_everywhere(q, nil)
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
