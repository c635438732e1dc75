-- Turns for a want that names sources: their lanes, whichever queues they are in.
local LISTED_AT_ONCE = 200

-- The sources that a want names, without those that have nothing for the pool.
local function sources_of(C, w)
  local of, met = {}, {}
  source.read_all(w.numbers)
  for _, n in ipairs(w.numbers) do
    local s = source.get(n)
    if s.gate and not s.deleted and s.pool == C.pool then
      if s.held > now then C.again = min(C.again, s.held)
      elseif not met[n] then met[n], of[#of + 1] = true, s end
    end
  end
  return of
end

-- Lists the lanes of a source that is named for the first time, some in each call; those
-- that are placed from then on are listed thereby.
local function list_lanes(C, s)
  local v, left = named.begin(s), LISTED_AT_ONCE - C.listed
  if v.all == 1 then return end
  if left <= 0 then
    C.left = true
    return
  end
  local found = call('SSCAN', key.lanes(s.n), string.format('%.0f', v.cursor), 'COUNT', left)
  queue.read_all(found[2])
  for _, name in ipairs(found[2]) do
    local q = queue.get(name)
    local l = queue.lane(q, s.n)
    if l and l.pool == s.pool then
      local a = queue.part(q, s.pool)
      if l.open and (a.stands == pool.WAIT and a.score > now or a.stands > pool.WAIT) then named.put_aside(s, l, a)
      elseif l.open or l.wait then named.place(s, l, l.open, l.wait, false) end
    end
  end
  C.listed = C.listed + #found[2]
  v.cursor, v.all, v.dirty = tonumber(found[1]), found[1] == '0' and 1 or 0, true
  if v.all == 0 then C.left = true end
end

-- Places the lane, which is no longer aside, and its queue where they belong now.
local function place_anew(s, name)
  local q = queue.get(name)
  local l = queue.lane(q, s.n)
  if not l then -- its value was lost
    call('ZREM', key.source_open(s.n), name)
    call('ZREM', key.source_wait(s.n), name)
    return
  end
  place.lane(l, false)
  if l.open then named.place(s, l, l.open, false, false) end
  place.queue(q, nil)
end

-- Places the lanes that can be looked at by now, the first of them.
local function promote(C, s)
  local left = claim.MOST_TURNS - C.woken
  local due = call('ZRANGEBYSCORE', key.source_wait(s.n), '-inf', now, 'LIMIT', 0, left + 1)
  if #due > left then C.left = true end
  for i = 1, min(#due, left) do place_anew(s, due[i]) end
  C.woken = C.woken + min(#due, left)
end

-- Whether one lane comes before another of the same score: by queue, then by source.
local function comes_first(name, s, other, its)
  return before(name, other) or name == other and before(decimal(s.n), decimal(its.n))
end

-- The first of the open lanes of all sources, its source, and the source that has the
-- first. Every eighth turn for which one has goes to the lane that waits longest.
local function next_lane(of)
  local name, score, lead
  for _, s in ipairs(of) do
    local m = call('ZRANGE', key.source_open(s.n), 0, 0, 'WITHSCORES')
    local at = tonumber(m[2] or nil)
    if at and (not name or at < score or at == score and comes_first(m[1], s, name, lead)) then name, score, lead = m[1], at, s end
  end
  if not name or named.of(lead).turns % 8 < 7 then return name, lead, lead end
  local whose, since, band = lead, score % BAND, floor(score / BAND)
  local most = band < 10 and 10 or 11
  for _, s in ipairs(of) do
    local set = key.source_open(s.n)
    local m = call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if m[1] and tonumber(m[2]) < most * BAND then
      local other, at = claim.oldest(set, m[1], tonumber(m[2]), most)
      local b, t = floor(at / BAND), at % BAND
      if t < since or t == since and (b < band or b == band and comes_first(other, s, name, whose)) then name, whose, since, band = other, s, t, b end
    end
  end
  return name, whose, lead
end

-- Gives the queue of an open lane a turn, which begins with that lane, and returns how many
-- tasks it gave. The lane is put aside where nothing more can be had now.
local function turn_of(C, h, s, name)
  local q = queue.get(name)
  local a, l = queue.part(q, C.pool), queue.lane(q, s.n)
  if not l or l.pool ~= C.pool or not l.open then
    C.looks = C.looks + 1
    place_anew(s, name)
    return 0
  end
  h.want.begin = l
  local got = claim.turn(C, h, q)
  h.want.begin = false
  if a.stands ~= pool.OPEN and l.open and l.pool == a.pool then named.put_aside(s, l, a) end
  return got
end

-- When a queue that gave a want nothing can probably give it something. A hint comes if
-- that becomes earlier.
function claim.again_at(w, q, a)
  if a.stands >= pool.WAIT then named.watch(q, a) end
  if a.stands == pool.WAIT then return a.score end
  local at = INF
  if a.stands == pool.OPEN and w.numbers then
    for _, n in ipairs(w.numbers) do
      local l, s = queue.lane(q, n), source.get(n)
      if l and l.wait and l.pool == a.pool then at = min(at, l.wait) end
      if s.gate and not s.deleted then
        named.begin(s)
        named.save(s)
      end
    end
  end
  return at
end

function claim.serve_sources(C, h, bound)
  local of = sources_of(C, h.want)
  for _, s in ipairs(of) do
    list_lanes(C, s)
    promote(C, s)
  end
  while not h.want.ended and h.room > 0 do
    local name, s, lead = next_lane(of)
    if not name then break end
    if bound(C) then
      C.left = true
      break
    end
    if turn_of(C, h, s, name) > 0 then
      local v = named.of(lead)
      v.turns, v.dirty = v.turns + 1, true
    end
  end
  for _, s in ipairs(of) do
    named.save(s)
    local at = tonumber(call('ZRANGE', key.source_wait(s.n), 0, 0, 'WITHSCORES')[2] or nil)
    if at and at < C.again then C.again = at end
  end
end
