-- Where a page of an index begins.

-- The rank of the first entry of a set to read: the first from score low on, or else
-- the first after an entry with a score. One that has moved since is looked for among
-- those of its score, from the first of them.
local function first_rank(set, low, score, after)
  if score == '' then return low == '-inf' and 0 or call('ZCOUNT', set, '-inf', '(' .. low) end
  if call('ZSCORE', set, after) == score then return call('ZRANK', set, after) + 1 end
  local rank = call('ZCOUNT', set, '-inf', '(' .. score)
  while true do
    local m = call('ZRANGE', set, rank, rank, 'WITHSCORES')
    if not m[1] or m[2] ~= score or before(after, m[1]) then return rank end
    rank = rank + 1
  end
end
