-- Reads a page of a set of a lane (dispatch.Tasks.ListTasks).
--
-- KEYS[1]  the shard key
-- ARGV     set: 'lt', 'ld', 'lc' and ':' and the lane's number; min and max
--          score ('due': of lane later, from or up to what is due now); the score
--          and the member to begin after ('' = the first); limit of entries, limit
--          of bytes (the first task always fits)
-- Returns  now, tasks, their bytes, number of entries read, score and member of the last
--          entry ('' = the end)
-- Cost     O(log n + limit), more if many entries share one score
--
-- flags: no-writes
-- uses: rank page
local set, low, high, limit, limit_bytes = P .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[7])
local lane = get_lane(string.match(ARGV[1], ':(%d+)$'))
if low == 'due' then low = decimal(LATER_FROM + now * 32 + 32) end
if high == 'due' then high = decimal(LATER_FROM + now * 32 + 31) end

local open = string.sub(high, 1, 1) == '('
local top = tonumber(open and string.sub(high, 2) or high)
local rank = first_rank(set, low, ARGV[4], ARGV[5])
local found = call('ZRANGE', set, rank, rank + limit - 1, 'WITHSCORES')
local looked, last_score, last_member, ended = 0, '', '', #found < 2 * limit
for i = 1, #found, 2 do
  local score = tonumber(found[i + 1])
  if score > top or (open and score == top) then
    ended = true
    break
  end
  if not add_task(id_of(lane, found[i]), limit_bytes) then
    ended = false
    break
  end
  looked, last_score, last_member = looked + 1, found[i + 1], found[i]
end
if ended then last_score, last_member = '', '' end
return { now, page, page_bytes, looked, last_score, last_member }
