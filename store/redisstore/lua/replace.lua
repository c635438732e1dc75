-- Reschedules a page of the waiting queues after a change of rules or holds
-- (dispatch.Queues.SyncRules): queues behind a gate without an end, and once after each
-- change the queues that wait longer than their lanes, since their gates may end at another
-- time now.
--
-- KEYS[1]  the shard key
-- ARGV     limit; the version of the settings for this pass ('0' = already complete, '' =
--          not known); pool ('' = the first); score and name of the last queue read in it
--          ('' = none)
-- Returns  version, pool, score and name for the next page; pool '' = the end
-- Cost     O(log n) a queue; at most 100 queues rescheduled, and 500 read
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
