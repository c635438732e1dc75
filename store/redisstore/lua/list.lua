-- Reads a page of an index: of a set of a lane, or of the leases.
--
-- KEYS[1]  the shard key
-- ARGV     set: 'leases', or 'lr', 'll', 'ld', 'lc' and ':' and the lane's
--          number; min and max score ('due': of lane later, from or up
--          to what is due now); the score and the member to begin after
--          ('' = the first); limit
-- Returns  now, tasks, score and member of the last entry ('' = the end), and the
--          scores of the tasks
-- Cost     O(log n + limit), more where many entries share one score
--
-- flags: no-writes
local set, low, high, score, after, limit = P .. ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local n = string.match(ARGV[1], ':(%d+)$')
local lane = n and get_lane(n)
if low == 'due' then low = decimal(now * 32 + 32) end
if high == 'due' then high = decimal(now * 32 + 31) end

-- The rank of the first entry to read. An entry that has moved since is looked
-- for among those of its score, from the first of them.
local function first_rank()
  if score == '' then return call('ZCOUNT', set, '-inf', '(' .. low) end
  if call('ZSCORE', set, after) == score then return call('ZRANK', set, after) + 1 end
  local rank = call('ZCOUNT', set, '-inf', '(' .. score)
  while true do
    local m = call('ZRANGE', set, rank, rank, 'WITHSCORES')
    if not m[1] or m[2] ~= score or before(after, m[1]) then return rank end
    rank = rank + 1
  end
end

local open = string.sub(high, 1, 1) == '('
local top = tonumber(open and string.sub(high, 2) or high)
local rank = low == '-inf' and score == '' and 0 or first_rank()
local found = call('ZRANGE', set, rank, rank + limit - 1, 'WITHSCORES')
local out, scores, last_score, last_member = {}, {}, '', ''
for i = 1, #found, 2 do
  local score_i = tonumber(found[i + 1])
  if score_i > top or (open and score_i == top) then
    last_score, last_member, limit = '', '', 0
    break
  end
  last_score, last_member = found[i + 1], found[i]
  local id = lane and id_of(lane, found[i]) or string.match(found[i], '^(.*):%d+$')
  local raw = call('GET', task_key(id))
  local r = read_record(raw)
  if r then out[#out + 1], scores[#out + 1] = task_reply(id, raw, r, NO_DETAILS), found[i + 1] end
end
if #found < 2 * limit or limit == 0 then last_score, last_member = '', '' end
return { now, out, last_score, last_member, scores }
