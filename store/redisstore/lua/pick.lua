-- How a claim picks queues of its pool. C is the claim of this call, false for none.
local C
local READ_QUEUES, READ_RECORDS = 25, 25 -- so many are read at once
local FIRST_QUEUES = 10 -- so many at first: a turn without a delay gives a tenth of what is asked for, or more

function claim.begin() C = false end

-- Begins the claim of a pool for wants. names and scores are the first queues of pool open,
-- from the position at on; whole says that these are all.
function claim.new(pool_name, wants)
  local room = 0
  for _, w in ipairs(wants) do room = room + w.max end
  C = {
    pool = pool_name, open = key.pool_open(pool_name), wait = key.pool_wait(pool_name), room = room, looks = 0, woken = 0, listed = 0, ready = 0,
    again = INF, granted = 0, misses = 0, orphaned = 0, dropped = 0, fence = 0, picks = 0,
    picked = false, names = {}, scores = {}, at = 1, whole = false, loaded = 0, bands = {}, one_band = false, many_bands = false, raws = {}, leases = {},
    stopped = false, left = false, out = reply.new(), answers = {},
  }
  return C
end

local function band_of(score) return floor(score / BAND) end

local function read_heads()
  pool.flush()
  local n = min(C.looks > 0 and 100 or FIRST_QUEUES, max(C.room - C.granted, 1)) -- and one more, which tells whether there are more
  local found = call('ZRANGE', C.open, '0', decimal(n), 'WITHSCORES')
  local names, scores = {}, {}
  for i = 1, #found, 2 do names[#names + 1], scores[#scores + 1] = found[i], tonumber(found[i + 1]) end
  C.names, C.scores, C.at, C.whole, C.loaded = names, scores, 1, #names <= n, 0
end

-- Reads the next queues with the first tasks of their lanes, which most turns take.
local function load_ahead()
  local names, numbers, of = {}, {}, {}
  local to = min(#C.names, C.at + min(READ_QUEUES, max(C.room - C.granted, 1)) - 1)
  for i = C.at, to do names[#names + 1] = C.names[i] end
  C.loaded = to
  queue.read_all(names)
  for i = 1, #names do
    local l = queue.get(names[i]).lane
    if l and l.open then numbers[#numbers + 1], of[#of + 1] = l.n, l end
  end
  source.read_all(numbers)
  local keys, suffixes, share = {}, {}, max(1, floor(min(C.room, 100) / max(min(#names, FIRST_QUEUES), 1)))
  for i = 1, #of do
    local l = of[i]
    local q = l.q
    local n = gate.delay(q) > 0 and 1 or min(share, rule.settings(q).in_flight - q.in_flight)
    if n > 0 and n <= min(lane.HEAD, READ_RECORDS - #keys) then -- for more than the head a turn reads by itself
      for _, suffix in ipairs(lane.alike(l, n, source.get(l.n))) do
        if C.raws[suffix] == nil then keys[#keys + 1], suffixes[#suffixes + 1] = key.task(q.slot .. '-' .. suffix), suffix end
      end
    end
  end
  if #keys == 0 then return end
  local found = call('MGET', unpack(keys))
  for i = 1, #keys do C.raws[suffixes[i]] = found[i] end
end

-- The first queues of the pool, as many as a claim may read at once.
function claim.first_names()
  claim.heads()
  return { unpack(C.names, 1, min(READ_QUEUES, C.room, #C.names)) }
end

-- Brings the names of the first queues of the pool; says whether there are any.
function claim.heads()
  if C.at > #C.names and not C.whole then read_heads() end
  return C.at <= #C.names
end

-- Whether all queues of pool open are in the band of the first. Once they are not, the call
-- takes it that they stay so.
local function is_one_band(band)
  if not C.many_bands and C.one_band ~= band then
    local last = C.whole and C.scores[#C.scores]
    if not last then
      pool.flush()
      last = tonumber(call('ZRANGE', C.open, '-1', '-1', 'WITHSCORES')[2] or nil)
    end
    C.one_band, C.many_bands = band, not last or band_of(last) ~= band
  end
  return not C.many_bands
end

-- The next queues of the pool, at most so many, whose values were not laid out. No pick of
-- these goes to another queue than the first: there is no eighth, or all of pool open are in
-- one band.
function claim.next_names(C, room)
  if not claim.heads() or C.at <= C.loaded then return {} end
  local n = min(READ_QUEUES, room, 100 - C.granted, claim.MOST_TURNS - C.looks, #C.names - C.at + 1)
  if C.picks % 8 + n >= 8 and not is_one_band(band_of(C.scores[C.at])) then return {} end
  return { unpack(C.names, C.at, C.at + n - 1) }
end

-- Notes that the first queue had such a turn, and is in pool open no more.
function claim.took_head(C)
  local band = band_of(C.scores[C.at])
  if C.bands[band] then C.bands[band] = C.bands[band] - 1 end
  C.at = C.at + 1
end

-- How many queues of pool open share the band of a score.
function claim.in_band(score)
  local band, n = band_of(score), 0
  if C.whole then
    for i = C.at, #C.names do
      if band_of(C.scores[i]) == band then n = n + 1 end
    end
    return n
  end
  if not C.bands[band] then
    pool.flush()
    C.bands[band] = call('ZCOUNT', C.open, decimal(band * BAND), decimal((band + 1) * BAND - 1))
  end
  return C.bands[band]
end

local function remove_head(name)
  if C.names[C.at] == name then
    C.at = C.at + 1
    return
  end
  for i = C.at, #C.names do
    if C.names[i] == name then
      table.remove(C.names, i)
      table.remove(C.scores, i)
      if i <= C.loaded then C.loaded = C.loaded - 1 end
      return
    end
  end
end

local function insert_head(name, score)
  local at = #C.names + 1
  while at > C.at and (score < C.scores[at - 1] or score == C.scores[at - 1] and before(name, C.names[at - 1])) do at = at - 1 end
  -- What comes behind the last that is known may come behind others, too.
  if at > #C.names and not C.whole then return end
  table.insert(C.names, at, name)
  table.insert(C.scores, at, score)
  if at <= C.loaded then C.loaded = C.loaded + 1 end
end

-- Notes that a queue moved, from a score of pool open, false for none.
function claim.moved(a, old)
  if not C or a.pool ~= C.pool then return end
  local new = a.stands == pool.OPEN and a.score or false
  local from, to = old and band_of(old), new and band_of(new)
  if from and C.bands[from] then C.bands[from] = C.bands[from] - 1 end
  if to and C.bands[to] then C.bands[to] = C.bands[to] + 1 end
  if to and C.one_band and to ~= C.one_band then C.many_bands = true end
  if old then remove_head(a.queue) end
  if new then insert_head(a.queue, new) end
end

-- Over the first members of all bands below `most` of an open set, the one that waits
-- longest, given the first of all.
function claim.oldest(set, name, score, most)
  local band = band_of(score)
  while true do
    local m = call('ZRANGEBYSCORE', set, decimal((band + 1) * BAND), '(' .. decimal(most * BAND), 'LIMIT', '0', '1', 'WITHSCORES')
    if not m[1] then return name, score end
    local other = tonumber(m[2])
    band = band_of(other)
    if other % BAND < score % BAND then name, score = m[1], other end
  end
end

-- Picks a queue of the pool: the first, every eighth time the one that waits longest; nil
-- when there is none.
function claim.pick()
  if not claim.heads() then return nil end
  if C.at > C.loaded then load_ahead() end
  local name, score = C.names[C.at], C.scores[C.at]
  C.picks, C.picked = C.picks + 1, true
  if C.picks % 8 == 0 and not is_one_band(band_of(score)) then
    pool.flush()
    name, score = claim.oldest(C.open, name, score, 11)
  end
  local q = queue.get(name)
  local a = queue.part(q, C.pool)
  if a.stands ~= pool.OPEN or a.score ~= score then
    a.stands, a.score, a.was = pool.OPEN, score, pool.OPEN -- its value was lost
  end
  return q
end

-- The queues that can be granted from by now, the first of them, each with its instant.
local MOST = 100 -- dispatch.MaxClaimTurns
function claim.due() return call('ZRANGEBYSCORE', C.wait, '-inf', decimal(now), 'LIMIT', '0', MOST + 1, 'WITHSCORES') end

-- Places the queues that due has found.
function claim.promote(due)
  if #due == 0 then return end
  local names = {}
  C.stopped = #due > 2 * MOST
  for i = 1, min(#due, 2 * MOST), 2 do names[#names + 1] = due[i] end
  queue.read_all(names)
  for i, name in ipairs(names) do
    if place.promoted >= place.MOST then break end
    local q = queue.get(name)
    local a = queue.part(q, C.pool)
    local score = tonumber(due[2 * i])
    if a.stands ~= pool.WAIT or a.score ~= score then a.stands, a.score, a.was = pool.WAIT, score, pool.WAIT end
    place.part(q, a)
  end
end

-- What a claim answers of its pool: when it has something next, why it has nothing now, and
-- whether a bound ended the claim before its end. Wait: 0 none, 1 no tasks, 2 throttled, 3
-- held.
function claim.outlook()
  local left = C.left and 1 or 0
  if place.promoted >= place.MOST then C.stopped = true end
  local opens = C.at <= #C.names
  if not opens and not C.whole then opens = call('EXISTS', C.open) == 1 end
  if opens then return now, 0, C.stopped and 1 or left end
  local first = call('ZRANGE', C.wait, '0', '0', 'WITHSCORES')
  local score = tonumber(first[2] or nil)
  local more = C.stopped and score and score <= now and 1 or left
  if first[1] then
    local q = queue.get(first[1])
    if queue.opens(q, queue.part(q, C.pool)) > 0 then
      rule.settings(q)
      return score, q.held > now and 3 or 2, more
    end
  end
  local held, full = pool.closed(C.pool)
  return score or 0, held > 0 and 3 or full > 0 and 2 or 1, more
end
