-- The turns that nearly all crawls consist of: a flat queue, all of whose tasks are ready,
-- is granted one task, and by that comes to its limit or begins its delay; and its only
-- lease of the call ends by success. Its value is read, changed and written here without
-- the tables that place.lua works on, which cost more than all else. What is not so is left
-- to the straight road, in its order.
local FLAT, FIRST, HERE, PICKS, ENTRY, LANE_OPEN = queue.FLAT, queue.FIRST, queue.HERE, queue.PICKS, lane.ENTRY, lane.OPEN
local AT_BITS, IS_FLAT, AT_HEAD, AT_SLOT = queue.AT_BITS, queue.IS_FLAT, queue.AT_HEAD, queue.AT_SLOT
local NOWHERE, OPEN, WAIT, FULL = pool.NOWHERE, pool.OPEN, pool.WAIT, pool.FULL
local LATER_BYTE = lane.LATER / 2 ^ 48 -- the first of a score

-- Whether a lane with that head has no task that is due later, or only in its set and later
-- than now.
local function all_ready(head, later)
  return head ~= '' and byte(head, -ENTRY) < LATER_BYTE and (later == 0 or later > now * 32 + 31)
end

-- The source, if its tasks can be granted now in the pool, and nothing is kept of it by name.
local function open_source(n, pool_name)
  local s = source.get(n)
  return s.pool == pool_name and not s.deleted and s.held <= now and s.named == 0 and s
end

-- Gives a queue its turn: the first task, with that record, goes to the next want. False if
-- it is not one of those.
local function turn(C, h, name, at_queue, packed, at_task, suffix, raw)
  local next_grant, held, version, slot, in_flight, waiting, _, bits, score, n, stands, lane_score, later, more, head, pattern, pool_name =
    parse(FLAT, packed)
  if next_grant > now or held > now or version ~= shard.settings_version() or pool_name ~= C.pool or bits % HERE ~= OPEN
    or stands ~= LANE_OPEN or not all_ready(head, later) then return false end
  local set, s = rule.filed_under(pattern), open_source(n, pool_name)
  if not set or not s then return false end
  local limit, delay = set.in_flight, set.delay
  if in_flight >= limit or delay <= 0 and in_flight + 1 < limit then return false end
  if #head < 2 * ENTRY and more > 0 and later > 0 then return false end -- some that follow may not be ready
  local w = claim.open_want(C, h)
  local bytes, detailed = claim.weigh(raw, s)
  if not bytes or detailed or w.max_bytes > 0 and #w.ids > 0 and w.bytes + bytes > w.max_bytes then return false end
  local t = claim.terms_of(w, s)
  local id = claim.grant_to(C, w, t, text_of(slot), suffix, at_task, raw)
  if not id then return false end
  local leases = C.leases
  local k = #leases
  leases[k + 1], leases[k + 2] = t.deadline, id .. ':' .. text_of(n) .. ':' .. name

  local to, here, from = NOWHERE, 0, next_grant
  in_flight, head, next_grant = in_flight + 1, sub(head, ENTRY + 1), max(next_grant, delay > 0 and now_end + delay or now)
  score, stands, lane_score = 0, 0, 0
  if head == '' and more > 0 then head, more = lane.next_head(text_of(n) .. ':' .. name, more) end
  if head ~= '' then
    to, here, stands = FULL, HERE, LANE_OPEN
    lane_score = lane.band(s, floor(parse('>I7', head) / BAND)) * BAND + now
    if in_flight < limit then to, score = WAIT, next_grant end
  end
  queue.write(name, at_queue, pack(FLAT, next_grant, held, version, slot, in_flight, waiting - 1, IS_FLAT,
    to + here + (floor(bits / PICKS) + 1) % 8 * PICKS, score, n, stands, lane_score, later, more, #head, head, #pattern, pattern,
    #pool_name, pool_name))
  pool.note(name, pool_name, OPEN, to, score)
  source.took(s)
  w.bytes = w.bytes + bytes
  if delay > 0 then
    w.turns = w.turns or {}
    w.turns[#w.turns + 1] = grant.pack_turn(name, from, next_grant, #w.ids, 1)
  end
  return true
end

-- Gives turns to the first queues of the pool as long as they are such; h is the line of
-- wants. Each takes one task. Says whether it gave any.
function polite.serve(C, h)
  local names = claim.next_names(C, h.room)
  if not names[1] then return false end
  local values, keys = queue.values(names)
  local n, numbers, tasks, suffixes, prefix = 0, {}, {}, {}, key.task('')
  for i = 1, #names do
    local packed = values[i]
    if not packed or byte(packed, AT_BITS) ~= IS_FLAT or byte(packed, AT_HEAD) < ENTRY then break end
    local slot, number, suffix = parse(FIRST, packed, AT_SLOT)
    n, numbers[i], suffixes[i], tasks[i] = i, number, suffix, prefix .. text_of(slot) .. '-' .. suffix
  end
  local records, given = source.read_all(numbers, tasks), 0
  for i = 1, n do
    if not turn(C, h, names[i], keys[i], values[i], tasks[i], suffixes[i], records[i]) then break end
    claim.took_head(C)
    given = i
  end
  for i = given + 1, #names do
    if values[i] then queue.offer(names[i], values[i]) end
  end
  if given == 0 then return false end
  C.looks, C.picks, C.granted, C.ready = C.looks + given, C.picks + given, C.granted + given, C.ready + given
  C.picked, h.room = true, h.room - given
  return true
end

-- Ends the only lease of the call in a queue, by a success that says nothing else of its
-- host; false if that is not so simple.
function polite.end_lease(name, at_queue, packed, fetch)
  if not packed or byte(packed, AT_BITS) ~= IS_FLAT then return false end
  local next_grant, held, version, slot, in_flight, waiting, _, bits, score, n, stands, lane_score, later, more, head, pattern, pool_name =
    parse(FLAT, packed)
  local was, empty = bits % HERE, head == ''
  if held > now or version ~= shard.settings_version() or in_flight <= 0 then return false end
  if empty then
    if more > 0 or was ~= NOWHERE then return false end
  elseif stands ~= LANE_OPEN or not all_ready(head, later) then return false end
  local set, s = rule.filed_under(pattern), open_source(n, pool_name)
  if not set or not s or set.factor > 0 and fetch > 0 or next_grant > now_end + set.delay then return false end
  next_grant, in_flight = max(next_grant, now + set.delay - fetch), in_flight - 1
  local to, to_score, here = FULL, 0, HERE
  if empty then
    to, here = NOWHERE, 0
    if in_flight == 0 and waiting == 0 then
      if next_grant <= now then
        queue.close(name, n, true, false)
        return true
      end
      queue.idles(name, next_grant)
    end
  elseif in_flight < set.in_flight then
    if next_grant <= now then
      local since = was == OPEN and score % BAND or was == WAIT and score <= now and score or now
      to, to_score = OPEN, min(floor(lane_score / BAND), 9) * BAND + since
      if was ~= OPEN then hints.tell(pool_name, now) end
    else
      to, to_score = WAIT, next_grant
      if was ~= OPEN and not (was == WAIT and score <= next_grant) then hints.tell(pool_name, next_grant) end
    end
  end
  queue.write(name, at_queue, pack(FLAT, next_grant, held, version, slot, in_flight, waiting, IS_FLAT,
    to + here + floor(bits / PICKS) * PICKS, to_score, n, stands, lane_score, later, more, #head, head, #pattern, pattern, #pool_name,
    pool_name))
  if to ~= was or to_score ~= score then pool.note(name, pool_name, was, to, to_score) end
  return true
end
