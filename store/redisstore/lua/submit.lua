-- Takes in tasks, or answers for those that exist (dispatch.Submits).
--
-- KEYS[1]  the shard key
-- ARGV     rules version, gates, queues, items; 12 values a gate (parts/gate.lua);
--          the queues; what is decided by of all items, packed (ITEM, below); and of
--          each the rest of its record. Times in ms.
-- Returns  code and state of each item, a byte each
-- Cost     O(log n) an item; at most 100 items
--
-- flags: none
-- uses: gate enter
-- Gate, queue (both from 1), recurring, priority, if exists, due (0 = now), revisit
-- after, modified, id (submit.go).
local ITEM = '>I2I2BBBI6I6I6Bc0'
-- The rest of a record: size, priority, depth, bytes of the core, run, first due,
-- and the body.
local REST = '>I3BI2I2I6I6'
local gates, queue_names, stale_rules

local function read_item(packed, at, rest)
  local gate, queue, recurring, priority, if_exists, due, revisit_after, modified, id, to = struct.unpack(ITEM, packed, at)
  return {
    id = id, key = task_key(id), queue = queue_names[queue], gate = gates[gate], recurring = recurring == 1, priority = priority, if_exists = if_exists,
    due = due > 0 and due or now, revisit_after = revisit_after, modified = modified, rest = rest,
  }, to
end

-- Reads the rest of an item whose task exists.
local function read_rest(item)
  local _, at
  item.size, _, item.depth, item.core, item.run, item.first_due, at = struct.unpack(REST, item.rest)
  item.body = string.sub(item.rest, at)
end

local submit
do
  local CREATED, EXISTS, REVISIT, LIMITED, STALE_SOURCE, STALE_RULES, DELETED = 1, 2, 3, 4, 5, 6, 7
  local SOONER, AGAIN, RESEED = 1, 2, 3

  local function limited(s)
    if s.limit == 0 then return false end
    local pending = by_source[s.uid] and by_source[s.uid].out or 0
    if s.counts.out + pending < s.limit then return false end
    tally_source(s.uid, 'limited', 1)
    return true
  end

  local function lay_body(r, item)
    r.core, r.size, r.body, r.priority = item.core, item.size, item.body, item.priority
  end

  local function create(s, item, old)
    if not item.recurring and limited(s) then return LIMITED, old and old.state or 0 end
    local l = lane_for(s.uid, item)
    if old then
      call('SET', item.key, new_record(l, item))
      leave_settled(get_lane(old.lane), item.id, old)
      call('DEL', details_key(item.id), history_key(item.id))
      enter_waiting(l, item.id, item)
    else
      enter(l, item)
    end
    outstanding(s.uid, item, 1)
    return CREATED, item.due <= now and 2 or WAITING
  end

  local function revisit(item, r, l)
    local recurring = r.recurring or item.recurring
    if not recurring and limited(get_source(l.uid)) then return LIMITED, r.state end
    local settled = { state = r.state, details = r.details, history = r.history }
    lay_body(r, item)
    r.state, r.recurring, r.depth, r.due, r.run = WAITING, recurring, item.depth, item.due, max(r.run, item.run)
    if item.if_exists == RESEED then r.first_due = item.first_due end
    r.attempt, r.counters, r.cancel, r.again, r.revision = 0, NO_COUNTERS, 0, false, r.revision + 1
    write_record(item.id, r)
    leave_settled(l, item.id, settled)
    enter_waiting(l, item.id, r)
    outstanding(l.uid, r, 1)
    return REVISIT, visible_state(r)
  end

  -- What an item changes of a waiting or leased record; says whether it did.
  local function merge(item, r, l)
    local before = pack_record(r)
    r.run, r.depth = max(r.run, item.run), min(r.depth, item.depth)
    local waits = r.state == WAITING
    if item.if_exists == SOONER and waits then
      r.due, r.priority = min(r.due, item.due), max(r.priority, item.priority)
    elseif item.if_exists == AGAIN then
      if waits then r.due = min(r.due, item.due) else r.again = true end
    elseif item.if_exists == RESEED then
      lay_body(r, item)
      r.due, r.first_due, r.cancel = item.due, item.first_due, 0
      if not r.recurring then
        outstanding(l.uid, r, -1)
        r.recurring = true
      end
    end
    return pack_record(r) ~= before
  end

  local function meet(item, r, l)
    local rank, due = rank_of(r), r.due
    if not merge(item, r, l) then return EXISTS, visible_state(r) end
    r.revision = r.revision + 1
    write_record(item.id, r)
    local moved = r.state == WAITING and (rank_of(r) ~= rank or r.due ~= due)
    if moved and not is_orphan(l, item.id) then
      leave_waiting(l, item.id)
      enter_waiting(l, item.id, r)
    end
    return EXISTS, visible_state(r)
  end

  local function again(item, r)
    if item.run > r.run or item.if_exists == AGAIN or item.if_exists == RESEED then return true end
    if r.state ~= DONE then return false end
    if item.revisit_after > 0 and r.settled_at + item.revisit_after <= now then return true end
    return r.settled_at < item.modified and item.modified <= now
  end

  function submit(item, raw)
    local r = raw and read_record(raw)
    local s = take_gate(item.gate)
    if s.deleted then return DELETED, 0 end
    if s.version > item.gate.version then return STALE_SOURCE, 0 end
    if stale_rules then return STALE_RULES, 0 end
    if not r then return create(s, item, nil) end
    read_rest(item)
    local l = get_lane(r.lane)
    if r.state < DONE then return meet(item, r, l) end
    if get_source(l.uid).deleted then return create(s, item, r) end
    if not again(item, r) then return EXISTS, r.state end
    return revisit(item, r, l)
  end
end

-- So many records are read at once.
local READ_AT_ONCE = 25

local function record_keys(items, from)
  local keys = {}
  for i = from, min(from + READ_AT_ONCE - 1, #items) do keys[#keys + 1] = items[i].key end
  return keys
end

-- at each call
local at, out, items, met, raws = 5, {}, {}, {}, nil
gates, queue_names = {}, {}
for i = 1, tonumber(ARGV[2]) do
  gates[i] = read_gate(at)
  at = at + 12
end
for i = 1, tonumber(ARGV[3]) do
  queue_names[i] = ARGV[at]
  at = at + 1
end
read_shard('ready', 'scheduled')
stale_rules = get_rules_version() > tonumber(ARGV[1])
local packed, from = ARGV[at], 1
for i = 1, tonumber(ARGV[4]) do items[i], from = read_item(packed, from, ARGV[at + i]) end
raws = find_lanes(items, record_keys(items, 1))
for i = 1, #items do
  local item = items[i]
  local k = (i - 1) % READ_AT_ONCE + 1
  if k == 1 and i > 1 then raws = call('MGET', unpack(record_keys(items, i))) end
  local raw = raws[k]
  if met[item.id] then
    -- What an earlier item made or changed is read again.
    enter_all()
    flush_writes()
    raw = call('GET', item.key)
  end
  met[item.id] = true
  out[2 * i - 1], out[2 * i] = submit(item, raw)
end
enter_all()
finish(true)
return string.char(unpack(out))
