-- The first members of an open set, kept while the script itself changes the
-- set, so that each look at the first one is not a question to Redis.
local all_heads -- by key, false = none

-- Reads the first n members; a set that is known is not read again.
local function read_heads(key, n)
  all_heads = all_heads or {}
  local h = all_heads[key]
  if h and (#h > 0 or h.whole) then return h end
  local found = call('ZRANGE', key, '0', n - 1, 'WITHSCORES')
  h = { whole = #found < 2 * n, counts = h and h.counts or {} }
  for i = 1, #found, 2 do h[#h + 1] = { name = found[i], score = tonumber(found[i + 1]) } end
  all_heads[key] = h
  return h
end

-- Notes that a member goes from one score to another, false = out of the set.
-- The old one may be nil, not known.
local function move_head(key, name, from, to)
  local h = all_heads and all_heads[key]
  if not h then return end
  if from == nil then h.counts = {} end
  local old, new = from and floor(from / BAND), to and floor(to / BAND)
  if old and h.counts[old] then h.counts[old] = h.counts[old] - 1 end
  if new and h.counts[new] then h.counts[new] = h.counts[new] + 1 end
  for i = 1, from ~= false and #h or 0 do
    if h[i].name == name then
      table.remove(h, i)
      break
    end
  end
  if not to then return end
  local at = #h + 1
  while at > 1 and (to < h[at - 1].score or (to == h[at - 1].score and before(name, h[at - 1].name))) do at = at - 1 end
  -- What comes behind the last that is known may come behind others, too.
  if at <= #h or h.whole then table.insert(h, at, { name = name, score = to }) end
end

-- How many members share the band of score.
local function in_band(key, score)
  local band, h = floor(score / BAND), all_heads and all_heads[key]
  local n = h and h.counts[band]
  if not n and h and h.whole then
    n = 0
    for _, m in ipairs(h) do
      if floor(m.score / BAND) == band then n = n + 1 end
    end
  end
  if n then return n end
  n = call('ZCOUNT', key, decimal(band * BAND), decimal((band + 1) * BAND - 1))
  if h then h.counts[band] = n end
  return n
end

-- at each call
all_heads = false
