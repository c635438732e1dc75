-- Where a lane belongs among the lanes of its queue, and a queue among those of each of its
-- pools ("place lane" and "place queue" in dispatch/scheduling.md).
place.MOST = 1000 -- so much a call promotes, tasks and lanes
local PAGE = 100

function place.begin() place.promoted = 0 end

-- When something of a pool can be granted, sooner than before; false = nothing. What does
-- not come first in the pool tells nobody anything, but for those that wait for the queue
-- or source itself (sure).
local soonest
function hints.begin() soonest = false end
function hints.tell(name, at, sure)
  soonest = soonest or {}
  local h = soonest[name] or { at = INF, sure = false }
  soonest[name] = h
  h.at, h.sure = min(h.at, at), h.sure or sure
end

local function comes_first(name, at)
  return at <= now or at <= (tonumber(call('ZRANGE', key.pool_wait(name), '0', '0', 'WITHSCORES')[2] or nil) or INF)
end

-- Sends the hints of a call in one message.
function hints.publish()
  if not soonest then return end
  local prefix, number = match(P, '^(.*):{(%d+)}:$')
  local message = {}
  for name, h in pairs(soonest) do
    if h.sure or comes_first(name, h.at) then
      message[#message + 1] = 'ready ' .. number .. ' ' .. name .. ' ' .. decimal(max(h.at - now, 0))
    end
  end
  if message[1] then call('PUBLISH', prefix .. ':hints', concat(message, '\n')) end
end

local function since_of(old, waited, turn_end)
  if turn_end then return now end
  if old then return old % BAND end
  if waited and waited <= now then return waited end
  return now
end

-- When the lane can be picked, and its band; nil when it is in no set. Tasks that are due
-- become ready first.
local function lane_time(l, s)
  local rank, later = lane.front(l)
  if later and later <= now * 32 + 31 then
    local n = lane.promote(l, max(1, min(PAGE, place.MOST - place.promoted)))
    place.promoted = place.promoted + n
    source.count(s, 'scheduled', -n)
    source.count(s, 'ready', n)
    rank, later = lane.front(l)
  end
  if s.deleted then return nil end
  if rank then return s.held, lane.band(s, rank) end
  if not later then return nil end
  return max(s.held, floor(later / 32))
end

-- Puts the lane where it belongs. turn_end: it was picked just now.
function place.lane(l, turn_end)
  local s, q = source.get(l.n), l.q
  local at, band = lane_time(l, s)
  if l.pool ~= '' and (not at or l.pool ~= s.pool) then
    lane.stand(l, false, false)
    l.pool = ''
  end
  if not at then
    if s.gate then named.place(s, l, false, false, false) end
    if not lane.is_empty(l) then call('SADD', key.ends(q.name), l.n) end -- it is listed there alone
    return
  end
  if l.pool == '' then l.pool, l.dirty = s.pool, true end
  local a = queue.part(q, l.pool)
  a.changed = true -- it has to be placed once more when it was already
  local was_open, sooner = l.open, l.open and 0 or l.wait or INF
  if at > now then lane.stand(l, false, at)
  else lane.stand(l, band * BAND + since_of(l.open, l.wait, turn_end), false) end
  if named.place(s, l, l.open, l.wait, was_open) and at < sooner then hints.tell(l.pool, max(at, now), true) end
end

-- Why a queue with lanes in the pool stands in none of its sets.
local function closed_kind(q, a, head)
  if q.held == INF or not head and queue.has_held_lane(q, a) then return pool.HELD end
  return head and pool.FULL or pool.LATER
end

local function promote_lanes(q, a)
  for _, l in ipairs(queue.due_lanes(q, a, PAGE)) do
    if place.promoted >= place.MOST then return end
    place.promoted = place.promoted + 1
    place.lane(l, false)
  end
end

-- Puts the queue where it belongs in one pool.
local function place_part(q, a, turn_end)
  local first = queue.first_wait(q, a)
  if first and first <= now then
    promote_lanes(q, a)
    first = queue.first_wait(q, a)
  end
  a.changed = false
  local head = queue.first_open(q, a)
  if not head and not first then
    pool.move(a, pool.NOWHERE, 0)
    if a.aside then named.bring_back(q, a) end
    return
  end
  local was_open, sooner = a.stands == pool.OPEN, a.stands == pool.WAIT and a.score or INF
  local next_grant = q.next_grant
  local at = max(gate.opens(q), head and 0 or first)
  if q.next_grant < next_grant then -- after a step of the clock: its other parts stand where it was
    local other = q.part
    while other do
      other.changed = other.changed or other ~= a
      other = other.next
    end
  end
  if at <= now and head then
    local since = since_of(was_open and a.score, sooner < INF and sooner, turn_end)
    pool.move(a, pool.OPEN, min(floor(head / BAND), 9) * BAND + since)
    if was_open then return end
    hints.tell(a.pool, now)
    if a.aside then named.bring_back(q, a) end
  elseif at == INF then
    pool.move(a, closed_kind(q, a, head), 0)
  else
    pool.move(a, pool.WAIT, at)
    if was_open or at >= sooner then return end
    hints.tell(a.pool, at, a.aside)
    if a.aside then named.bring_back(q, a) end
  end
end

-- Places the queue where lanes have moved since it was placed, as those do whose source was
-- moved to another pool.
local function place_changed(q)
  local again = true
  while again do
    again = false
    local a = q.part
    while a do
      if a.changed then
        again = true
        place_part(q, a, false)
      end
      a = a.next
    end
  end
end

-- Whether a queue in pool open still belongs there, as it stands: nothing has changed since
-- it was placed. Of a wide queue that is not known.
function place.is_open(q, a)
  local l = q.lane
  return l and l.open and a.stands == pool.OPEN and not a.changed and q.version == shard.settings_version() and q.next_grant <= now
    and q.block <= now and q.held <= now and q.in_flight < rule.settings(q).in_flight
end

-- Places the queue in one pool.
function place.part(q, a)
  place_part(q, a, false)
  if a.changed or q.part ~= a or a.next then place_changed(q) end
end

-- Places the queue in all its pools. turn is the pool in which it had a turn just now, nil
-- for none.
function place.queue(q, turn)
  q.touched = false
  local a = q.part
  while a do
    place_part(q, a, a.pool == turn)
    a = a.next
  end
  a = q.part
  if a and (a.changed or a.next) then place_changed(q) end
end
