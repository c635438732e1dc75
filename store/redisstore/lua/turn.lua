-- A queue's turn in a claim.
local DEFAULT_LEASE, DEFAULT_HOLD = 30000, 1800000
local READ_AT_ONCE = 25
local LEASE_TERMS = '>I6I6I4I4BBI2'

-- What leases of one source, of one want have in common.
local function terms_of(w, s)
  local t = s.terms and s.terms[w]
  if t then return t end
  local hold = s.hold > 0 and s.hold or DEFAULT_HOLD
  local duration = min(w.lease > 0 and w.lease or (s.lease > 0 and s.lease or DEFAULT_LEASE), hold)
  local deadline = now + duration
  t = { deadline = decimal(deadline), packed = w.holder .. pack(LEASE_TERMS, now, deadline, duration, hold, 0, 0, #w.holder_name) }
  s.terms = s.terms or {}
  s.terms[w] = t
  return t
end

-- What a task that may be granted counts for the limit of a want, and whether it has
-- details; nil for one that may not.
local function weigh(raw, id, s)
  if not raw or #raw < record.HEADER then return nil end
  local version, state, flags = byte(raw, 1, 3)
  if version ~= 1 or state ~= record.WAITING then return nil end
  local high, middle, low = byte(raw, 24, 26)
  local bytes = high * 65536 + middle * 256 + low + s.joined
  if flags % 8 < record.DETAILS then return bytes, false end
  return bytes + call('HSTRLEN', key.details(id), 'c') + call('HSTRLEN', key.details(id), 'm'), true
end

-- The record of the lane's first task, read with those of the next, of which n are likely
-- to be taken.
local function raw_of(C, l, suffix, n)
  local raw = C.raws[suffix]
  if raw == nil then
    local suffixes, keys = lane.peek(l, min(n, READ_AT_ONCE)), {}
    for i = 1, #suffixes do keys[i] = key.task(l.q.slot .. '-' .. suffixes[i]) end
    local found = call('MGET', unpack(keys))
    for i = 1, #suffixes do C.raws[suffixes[i]] = found[i] end
    raw = C.raws[suffix]
  end
  C.raws[suffix] = nil
  return raw
end

-- Leases a task to a want; false and when to look again if another lock stands.
local function grant_to(C, w, l, s, id, suffix, raw, detailed)
  local t, fence = terms_of(w, s), max(C.fence + 1, now_us)
  local locked, ttl = lock.set(key.lock(id), w.holder_name .. '/' .. decimal(fence), t.deadline)
  local leases, n = C.leases, #C.leases
  leases[n + 1], leases[n + 2] = locked and t.deadline or decimal(now + ttl), (locked and '' or 'o') .. id .. ':' .. l.name
  if not locked then return false end
  C.fence = fence
  raw = pack('>BI8', record.MARK, fence) .. t.packed .. raw .. w.holder_name
  write(key.task(id), raw)
  reply.add_source(C.out, s)
  local answers = C.answers
  n = #answers
  answers[n + 1], answers[n + 2] = suffix, raw
  if detailed then answers[n + 3] = reply.holder_details(id) end
  n = #w.ids + 1
  if n == 1 then w.fence = fence end
  w.ids[n] = w.slot == l.q.slot and suffix or id
  w.slot = l.q.slot
  return true
end

-- Takes up to share tasks from the lane while its band stays what it is, for one want after
-- the other; returns how many were granted.
local function take(C, h, q, l, s, share)
  local band, granted, missing, orphaned = nil, 0, 0, 0
  if share > 1 then lane.load(l, share) end
  while granted < share and C.misses + missing + orphaned < 100 do
    local suffix, rank = lane.first_ready(l)
    local its = rank and lane.band(s, rank)
    band = band or its
    if not suffix or its ~= band then break end
    local w, id = claim.open_want(C, h), q.slot .. '-' .. suffix
    local raw = raw_of(C, l, suffix, share - granted)
    local bytes, detailed = weigh(raw, id, s)
    if bytes and w.max_bytes > 0 and #w.ids > 0 and w.bytes + bytes > w.max_bytes then
      w.ended = true
      break
    end
    lane.take(l)
    if not bytes then missing = missing + 1
    elseif grant_to(C, w, l, s, id, suffix, raw, detailed) then granted, w.bytes = granted + 1, w.bytes + bytes
    else orphaned = orphaned + 1 end
  end
  source.count(s, 'ready', -granted - missing)
  source.count(s, 'leased', granted)
  q.waiting, q.in_flight, q.dirty, l.dirty = q.waiting - granted - missing, q.in_flight + granted, true, true
  C.granted, C.misses = C.granted + granted, C.misses + orphaned + missing
  C.dropped, C.orphaned = C.dropped + missing, C.orphaned + orphaned
  return granted
end

-- Picks a lane of the queue, in queue open: of the sources that a want names the first,
-- which is no pick; else the first, and every eighth time the one that waits longest.
local function pick_lane(w, q, a)
  local best
  if w.begin then
    best, w.begin = w.begin, false
    return best.open and best
  elseif w.numbers then
    for _, n in ipairs(w.numbers) do
      local l = queue.lane(q, n)
      if l and l.open and l.pool == a.pool and (not best or l.open < best.open
          or l.open == best.open and before(decimal(l.n), decimal(best.n))) then best = l end
    end
    return best
  end
  local score, n = queue.first_open(q, a)
  if not score then return nil end
  a.picks, q.dirty = (a.picks + 1) % 8, true
  if a.picks == 0 and queue.opens(q, a) > 1 then n = tonumber((claim.oldest(key.queue_open(a), n, score, score < 10 * BAND and 10 or 11))) end
  return queue.lane(q, n) or lane.new(q, n)
end

-- How many lanes of queue open share a lane's band.
local function lanes_in_band(q, a, l)
  if queue.opens(q, a) == 1 then return 1 end
  local band = floor(l.open / BAND)
  return call('ZCOUNT', key.queue_open(a), decimal(band * BAND), decimal((band + 1) * BAND - 1))
end

-- Picks a lane and takes from it: how many were granted, and whether the turn goes on.
local function take_from_lane(C, h, q, a, quota)
  local l = pick_lane(h.want, q, a)
  if not l then return 0, false end
  local s = source.get(l.n)
  if s.deleted or l.pool ~= C.pool or s.pool ~= C.pool or s.held > now then
    -- Its source was held, moved or deleted, and the lane is not placed yet.
    if not l.open then
      l.pool, l.open = C.pool, 0 -- its value was lost
    end
    place.lane(l, false)
    return 0, true
  end
  local share = quota > 1 and max(1, floor(quota / lanes_in_band(q, a, l))) or 1
  local got = take(C, h, q, l, s, share)
  place.lane(l, true)
  return got, C.misses < 100 and not h.want.ended
end

-- Gives the queue a turn and returns how many tasks it gave.
function claim.turn(C, h, q)
  C.looks = C.looks + 1
  local a = queue.part(q, C.pool)
  place.part(q, a)
  if a.stands ~= pool.OPEN then return 0 end
  local quota, gap = 1, gate.delay(q)
  if gap <= 0 then
    quota = min(h.room, rule.settings(q).in_flight - q.in_flight, 100 - C.granted)
    if quota > 1 then quota = min(quota, h.asks > 1 and max(1, floor(h.asks / min(claim.in_band(a.score), 10))) or 1) end
  end
  local first, had, total, goes_on = h.at, #h.want.ids, 0, true
  while quota > 0 and goes_on do
    local got, misses = 0, C.misses
    got, goes_on = take_from_lane(C, h, q, a, quota)
    quota, total = quota - got, total + got
    if got == 0 and C.misses == misses and goes_on then -- a look at a lane, which is bounded, too
      C.looks = C.looks + 1
      goes_on = C.looks < claim.MOST_TURNS
    end
  end
  if total > 0 then
    local from = q.next_grant
    gate.raise(q, gap > 0 and now_end + gap or now)
    claim.note_turn(h, first, had, q, from)
    h.room = h.room - total
  end
  place.queue(q, C.pool)
  return total
end
