-- A queue's turn in a claim.
local DEFAULT_LEASE, DEFAULT_HOLD = 30000, 1800000
local READ_AT_ONCE = 25
local LEASE_TERMS = '>I6I6I4I4BBI2'

-- What leases of sources with the same terms, of one want, have in common.
function claim.terms_of(w, s)
  reply.add_source(w.out, s)
  local hold = s.hold > 0 and s.hold or DEFAULT_HOLD
  local duration = min(w.lease > 0 and w.lease or (s.lease > 0 and s.lease or DEFAULT_LEASE), hold)
  local t = w.terms
  if t and t.duration == duration and t.hold == hold then return t end
  local deadline = now + duration
  t = {
    duration = duration, hold = hold, deadline = decimal(deadline),
    packed = w.holder .. pack(LEASE_TERMS, now, deadline, duration, hold, 0, 0, #w.holder_name),
  }
  w.terms = t
  return t
end

-- What the details of a task count for the limit of a want.
local function weigh_details(id)
  return call('HSTRLEN', key.details(id), 'c') + call('HSTRLEN', key.details(id), 'm')
end

-- What a task that may be granted counts for the limit of a want, and whether it has
-- details, which count besides; nil for one that may not.
function claim.weigh(raw, s)
  if not raw or #raw < record.HEADER then return nil end
  local version, state, flags = byte(raw, 1, 3)
  if version ~= 1 or state ~= record.WAITING then return nil end
  local high, middle, low = byte(raw, 24, 26)
  return high * 65536 + middle * 256 + low + s.joined, flags % 8 >= record.DETAILS
end

-- Leases a task to a want, on terms, and gives its id; name is the key of its record. nil and
-- when to look again if another lock stands.
function claim.grant_to(C, w, t, slot, suffix, name, raw, detailed)
  local fence, id = max(C.fence + 1, now_us), slot .. '-' .. suffix
  local locked, ttl = lock.set(P .. 'lock:' .. id, format('%s%d', w.token_prefix, fence), t.deadline)
  if not locked then return nil, ttl end
  local answers, ids = C.answers, w.ids
  C.fence = fence
  raw = pack('>BI8', record.MARK, fence) .. t.packed .. raw .. w.holder_name
  local k = #writes
  writes[k + 1], writes[k + 2] = name, raw
  k = #answers
  answers[k + 1], answers[k + 2] = suffix, raw
  if detailed then answers[k + 3] = reply.holder_details(id) end
  k = #ids + 1
  if k == 1 then w.fence = fence end
  ids[k] = w.slot == slot and suffix or id
  w.slot = slot
  return id
end

-- Puts an orphan among the leases until it is looked at again.
local function note_orphan(C, l, id, ttl)
  local leases = C.leases
  leases[#leases + 1], leases[#leases + 2] = decimal(now + ttl), id .. '~:' .. l.name
end

-- The records of some of the tasks of a lane from the i-th on.
local function read_records(prefix, suffixes, i)
  local keys = {}
  for k = i, min(i + READ_AT_ONCE - 1, #suffixes) do keys[k - i + 1] = prefix .. suffixes[k] end
  return call('MGET', unpack(keys))
end

-- Takes up to share tasks from the lane while its band stays what it is, for one want after
-- the other; returns how many were granted.
local function take(C, h, q, l, s, share, band)
  local suffixes
  suffixes, band = lane.alike(l, share, s, band)
  local prefix, tail, granted, missing, orphaned, taken = q.slot .. '-', ':' .. l.name, 0, 0, 0, 0
  local tasks, leases = P .. 't:' .. prefix, C.leases
  local w, t, records, from = nil, nil, {}, 1
  for i = 1, min(#suffixes, 100 - C.misses) do
    if not w or #w.ids == w.max then
      w = claim.open_want(C, h)
      t = claim.terms_of(w, s)
    end
    local suffix = suffixes[i]
    local raw = C.raws[suffix] -- read ahead
    if raw == nil then
      if i >= from + #records then records, from = read_records(tasks, suffixes, i), i end
      raw = records[i - from + 1]
    end
    local bytes, detailed = claim.weigh(raw, s)
    if detailed then bytes = bytes + weigh_details(prefix .. suffix) end
    if bytes and w.max_bytes > 0 and #w.ids > 0 and w.bytes + bytes > w.max_bytes then
      w.ended = true
      break
    end
    taken = i
    if not bytes then
      missing = missing + 1
    else
      local id, ttl = claim.grant_to(C, w, t, q.slot, suffix, tasks .. suffix, raw, detailed)
      if id then
        local k = #leases
        leases[k + 1], leases[k + 2] = t.deadline, id .. tail
        granted, w.bytes = granted + 1, w.bytes + bytes
      else
        note_orphan(C, l, prefix .. suffix, ttl)
        orphaned = orphaned + 1
      end
    end
  end
  lane.take(l, taken)
  source.count(s, 'ready', -granted - missing)
  source.count(s, 'leased', granted)
  q.waiting, q.in_flight, q.dirty = q.waiting - granted - missing, q.in_flight + granted, true
  C.granted, C.misses = C.granted + granted, C.misses + orphaned + missing
  C.dropped, C.orphaned = C.dropped + missing, C.orphaned + orphaned
  return granted, orphaned + missing, band
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
  local got, missed, band = 0, 0, nil
  repeat
    local more
    more, missed, band = take(C, h, q, l, s, share - got, band)
    got = got + more
  until got >= share or missed == 0 or h.want.ended or C.misses >= 100
  place.lane(l, true)
  return got, C.misses < 100 and not h.want.ended
end

-- Gives the queue a turn and returns how many tasks it gave.
function claim.turn(C, h, q)
  C.looks = C.looks + 1
  local a = queue.part(q, C.pool)
  if not place.is_open(q, a) then
    place.part(q, a)
    if a.stands ~= pool.OPEN then return 0 end
  end
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
