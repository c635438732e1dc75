-- Reads a page of a set of a lane.
--
-- KEYS[1]  the shard key
-- ARGV     set: 'lt', 'ld', 'lc' and ':' and the lane's number; min and max
--          score ('due': of lane later, from or up to what is due now); the score
--          and the member to begin after ('' = the first); limit
-- Returns  now, tasks, score and member of the last entry ('' = the end)
-- Cost     O(log n + limit), more where many entries share one score
--
-- flags: no-writes
-- uses: rank
local set, low, high, limit = P .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[6])
local lane = get_lane(string.match(ARGV[1], ':(%d+)$'))
if low == 'due' then low = decimal(LATER_FROM + now * 32 + 32) end
if high == 'due' then high = decimal(LATER_FROM + now * 32 + 31) end

local open = string.sub(high, 1, 1) == '('
local top = tonumber(open and string.sub(high, 2) or high)
local rank = first_rank(set, low, ARGV[4], ARGV[5])
local found = call('ZRANGE', set, rank, rank + limit - 1, 'WITHSCORES')
local out, last_score, last_member = {}, '', ''
for i = 1, #found, 2 do
  local score = tonumber(found[i + 1])
  if score > top or (open and score == top) then
    last_score, last_member, limit = '', '', 0
    break
  end
  last_score, last_member = found[i + 1], found[i]
  local id = id_of(lane, found[i])
  local raw = call('GET', task_key(id))
  local r = read_record(raw)
  if r then out[#out + 1] = task_reply(id, raw, r, NO_DETAILS) end
end
if #found < 2 * limit or limit == 0 then last_score, last_member = '', '' end
return { now, out, last_score, last_member }
