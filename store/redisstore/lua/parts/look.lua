-- The lease index, as a sweep looks at it.
local MAX_LOOKS = 500 -- dispatch.MaxSweepLooks
local MAX_LEASE = 3600000
local LEASED_TO = '(2251799813685248' -- ORPHAN_FROM

-- No deadline is beyond this by more than the longest lease: the latest instant
-- that the shard has seen, ahead of now when the clock was stepped back.
local highest
local function read_highest(kept, fence) highest = max(now, tonumber(kept or '0'), floor(tonumber(fence or '0') / 1000)) end

-- The lanes that were looked at, by name: how many of their leases stay in the index
-- up to now, the first of these, where those begin that were not read (rest), and the
-- places of those that were renewed. stale has the lanes that are to be mended.
local looked, stale
local function lane_looked(name)
  local v = looked[name]
  if not v then
    v = { name = name, stay = 0, first = false, rest = false, renewed = {}, stale = false }
    looked[name] = v
  end
  if not v.stale then v.stale, stale[#stale + 1] = true, v end
  return v
end

-- Leases of a lane by their deadlines, with those.
local function read_leases(name, from, to, skip, limit)
  return call('ZRANGEBYSCORE', tasks_key(name), from, to, 'LIMIT', skip, limit, 'WITHSCORES')
end

-- The first deadline of a lane from some place on, or false.
local function first_deadline(name, from)
  local m = read_leases(name, from, LEASED_TO, 0, 1)
  return m[1] and tonumber(m[2]) - LEASED_FROM or false
end

-- Notes that an entry stays where it is, up to now.
local function stays(e)
  local v = e.looked
  if v then v.stay, v.first = v.stay + 1, min(v.first or e.at, e.at) end
end

local next_entries
do
  local AT_ONCE = 200

  -- Those of a lane are in order already.
  local function earlier(a, b)
    if a.at ~= b.at then return a.at < b.at end
    if a.looked and a.looked == b.looked then return a.n < b.n end
    return before(a.id, b.id)
  end

  -- Reads entries of the leases of a lane up to now; returns whether those are all.
  local function read_due(entries, name, left)
    local v = lane_looked(name)
    local found = read_leases(name, decimal(LEASED_FROM), decimal(LEASED_FROM + now), v.stay, left)
    for i = 1, #found, 2 do
      entries[#entries + 1] = { id = id_of(get_lane(name), found[i]), at = tonumber(found[i + 1]) - LEASED_FROM, n = i, lane = name, looked = v }
    end
    v.rest = #found == 2 * left and entries[#entries].at
    return not v.rest
  end

  -- The next entries of due, members of the index up to now, from the i-th on, the
  -- earliest first, at most looks; and where it goes on.
  function next_entries(due, i, looks)
    local entries, lanes, most = {}, 0, min(AT_ONCE, looks)
    while due[i] and #entries < most do
      local id, lane = split_member(due[i])
      lanes = lanes + 1
      if id then entries[#entries + 1] = { id = id, at = tonumber(call('ZSCORE', LEASES, due[i])), lane = lane, orphan = due[i] }
      elseif not read_due(entries, lane, most - #entries) then break end
      i = i + 1
    end
    if lanes > 1 then table.sort(entries, earlier) end
    return entries, i
  end
end

-- Puts renewed leases where they belong, and the lanes that were looked at.
local function mend_lanes()
  local set, gone = {}, {}
  for _, v in ipairs(stale) do
    call_for_all('ZADD', tasks_key(v.name), v.renewed)
    v.renewed, v.stale = {}, false
    local at = v.first or v.rest or first_deadline(v.name, '(' .. decimal(LEASED_FROM + now))
    if at then set[#set + 1], set[#set + 2] = at, v.name else gone[#gone + 1] = v.name end
  end
  call_for_all('ZADD', LEASES, set)
  call_for_all('ZREM', LEASES, gone)
  stale = {}
end

local look_at, look_ahead
do
  local AHEAD = 500 -- dispatch.SweepAhead

  -- The state of an entry's record, 0 for none, and the deadline of its lease.
  local function peek(id)
    local h = call('GETRANGE', task_key(id), 0, HEADER - 1)
    if #h < HEADER then return 0, 0 end
    if is_leased(h) then return LEASED, (struct.unpack('>I6', h, AT.deadline)) end
    return string.byte(h, AT.state), 0
  end

  -- Notes that a lease of a lane was renewed.
  local function note_renewed(v, id, deadline)
    local n = #v.renewed
    v.renewed[n + 1], v.renewed[n + 2] = LEASED_FROM + deadline, suffix_of(id)
    highest = max(highest, deadline - MAX_LEASE)
  end

  -- Looks at a waiting record in the index: an orphan becomes grantable when its lock
  -- has ended.
  local function look_at_orphan(e, l, r)
    local place = place_of(l, suffix_of(e.id))
    if e.orphan and place ~= 'orphan' then
      call('ZREM', LEASES, e.orphan)
      return
    end
    local ttl = e.orphan and call('PTTL', lock_key(e.id)) or 0
    if orphans.locked(ttl) then
      call('ZADD', LEASES, now + orphans.next_look(ttl), e.orphan)
      return
    end
    leave_lane(l, e.id, place)
    enter_waiting(l, e.id, r)
  end

  -- Checks an entry, and returns whether it is an expired lease.
  function look_at(e)
    local state, deadline = peek(e.id)
    if state == LEASED and e.looked then
      if deadline <= now then return true end
      note_renewed(e.looked, e.id, deadline)
    elseif state == WAITING then
      look_at_orphan(e, get_lane(e.lane), read_record(call('GET', task_key(e.id))))
    else
      if e.orphan then call('ZREM', LEASES, e.orphan) end
      drop_entry(get_lane(e.lane), e.id)
    end
    return false
  end

  -- Looks for renewed leases, and lanes whose place is behind, among what is soon to
  -- come, so that the next sweep need not come for them.
  function look_ahead(looks)
    local from, to = '(' .. decimal(LEASED_FROM + now), decimal(LEASED_FROM + now + AHEAD)
    for _, member in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now + AHEAD, 'LIMIT', 0, MAX_LOOKS)) do
      local id, name = split_member(member)
      if looks == 0 then break end
      if not id then
        local v, soon = lane_looked(name), read_leases(name, from, to, 0, looks)
        for i = 1, #soon, 2 do
          id = id_of(get_lane(name), soon[i])
          local state, deadline = peek(id)
          if state == LEASED and LEASED_FROM + deadline > tonumber(soon[i + 1]) then note_renewed(v, id, deadline) end
        end
        looks = looks - #soon / 2
      end
    end
    mend_lanes()
  end
end

-- The place of the first entry, of which all that are before it were brought up to
-- date, at most MAX_LOOKS; false when there is none.
local function first_entry()
  for _ = 1, MAX_LOOKS do
    local entry = call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
    local at = tonumber(entry[2] or nil)
    if not at or split_member(entry[1]) then return at or false end
    local first = first_deadline(entry[1], decimal(LEASED_FROM))
    if first == at then return at end
    if first then call('ZADD', LEASES, first, entry[1]) else call('ZREM', LEASES, entry[1]) end
  end
  return now
end

-- The first deadline after now, or an instant before it; 0 when there is none.
local function next_deadline()
  local first = call('ZRANGEBYSCORE', LEASES, '(' .. decimal(now), '+inf', 'LIMIT', 0, 1, 'WITHSCORES')
  local at = tonumber(first[2] or nil) or INF
  for _, v in pairs(looked) do
    if v.first then at = min(at, first_deadline(v.name, '(' .. decimal(LEASED_FROM + now)) or INF) end
  end
  return at < INF and at or 0
end

-- at each call
looked, stale = {}, {}
