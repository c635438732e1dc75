-- Takes in tasks, or answers for those that exist (dispatch.Submits).
--
-- KEYS[1]  the shard key
-- ARGV     rules version, gates, items; 11 values a gate (prelude/gate.lua);
--          14 an item: id, gate (from 1), queue, recurring, depth, run,
--          priority, due (0 = now), first due, if exists, revisit after,
--          bytes of the core, size, and its body. Times in ms.
-- Returns  code and state of each item, flat.
-- Cost     O(log n) an item; at most 100 items. Its first write is one that
--          Redis refuses when it is full.
--
-- uses: base keys record counts settings lane queue task gate finish
local CREATED, EXISTS, REVISIT, LIMITED, STALE_SOURCE, STALE_RULES, DELETED = 1, 2, 3, 4, 5, 6, 7
local SOONER, AGAIN, RESEED = 1, 2, 3

local gates, at = {}, 4
for i = 1, tonumber(ARGV[2]) do
  gates[i] = read_gate(at)
  at = at + 11
end
local stale_rules = get_rules_version() > tonumber(ARGV[1])

local function read_item(i)
  local item = {
    id = ARGV[i], gate = gates[tonumber(ARGV[i + 1])], queue = ARGV[i + 2], recurring = ARGV[i + 3] == '1',
    depth = tonumber(ARGV[i + 4]), run = tonumber(ARGV[i + 5]), priority = tonumber(ARGV[i + 6]),
    due = tonumber(ARGV[i + 7]), first_due = tonumber(ARGV[i + 8]), if_exists = tonumber(ARGV[i + 9]),
    revisit_after = tonumber(ARGV[i + 10]), core = tonumber(ARGV[i + 11]), size = tonumber(ARGV[i + 12]),
    body = ARGV[i + 13],
  }
  if item.due == 0 then item.due = now end
  return item
end

-- The lane of a source in a queue, made when it is the first task there.
local function lane_for(uid, item)
  local n = call('ZSCORE', lanes_key(uid), item.queue)
  if n then return get_lane(n) end
  n = call('HINCRBY', SHARD, 'lane', 1)
  call('HSET', lane_key(n), 'uid', uid, 'queue', item.queue, 'slot', string.sub(item.id, 1, -28))
  call('ZADD', lanes_key(uid), n, item.queue)
  call('ZADD', queue_lanes_key(item.queue), n, n)
  local l = { n = n, uid = uid, queue = item.queue, slot = string.sub(item.id, 1, -28), pool = '', settled = false, fresh = true }
  lanes[n] = l
  return l
end

local function limited(s)
  if s.limit == 0 then return false end
  s.out = s.out or tonumber(call('HGET', source_key(s.uid), 'out') or '0')
  local pending = by_source[s.uid] and by_source[s.uid].out or 0
  if s.out + pending < s.limit then return false end
  tally_source(s.uid, 'limited', 1)
  return true
end

-- What indexes still say of a record of that id that was forgotten, or lost.
local function clear_traces(l, id)
  if l.fresh then return end
  drop_entry(l, id)
  if not l.settled then return end
  if call('ZREM', dead_key(l.n), suffix_of(id)) == 1 then count(l.uid, 'dead', -1) end
  if call('ZREM', canceled_key(l.n), suffix_of(id)) == 1 then count(l.uid, 'canceled', -1) end
end

local function lay_body(r, item)
  r.core, r.size, r.body, r.priority = item.core, item.size, item.body, item.priority
end

local function create(s, item, old)
  if not item.recurring and limited(s) then return LIMITED, old and old.state or 0 end
  local l = lane_for(s.uid, item)
  local r = {
    version = 1, state = WAITING, result = 0, cancel = 0, lane = l.n, depth = item.depth, revision = 1,
    cycle = 0, attempt = 0, failures = 0, expirations = 0, throttled = 0, given_up = 0, expired_cycles = 0,
    permanent_cycles = 0, run = item.run, due = item.due, first_due = item.first_due, created = now, settled_at = 0,
    last = NO_DIGEST, recurring = item.recurring,
  }
  lay_body(r, item)
  end_lease(r)
  write_record(item.id, r)
  if old then
    leave_settled(get_lane(old.lane), item.id, old)
    call('DEL', details_key(item.id), history_key(item.id))
  else
    clear_traces(l, item.id)
  end
  enter_waiting(l, item.id, r)
  outstanding(s.uid, r, 1)
  return CREATED, visible_state(r)
end

local function revisit(item, r, l)
  local recurring = r.recurring or item.recurring
  if not recurring and limited(get_source(l.uid)) then return LIMITED, r.state end
  local settled = { state = r.state, details = r.details, history = r.history }
  lay_body(r, item)
  r.state, r.recurring, r.depth, r.due, r.run = WAITING, recurring, item.depth, item.due, max(r.run, item.run)
  if item.if_exists == RESEED then r.first_due = item.first_due end
  r.attempt, r.failures, r.expirations, r.throttled = 0, 0, 0, 0
  r.given_up, r.expired_cycles, r.permanent_cycles = 0, 0, 0
  r.cancel, r.again, r.revision = 0, false, r.revision + 1
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
  return r.state == DONE and item.revisit_after > 0 and r.settled_at + item.revisit_after <= now
end

local function submit(item)
  local r = read_record(call('GET', task_key(item.id)))
  local s = take_gate(item.gate)
  if s.deleted then return DELETED, 0 end
  if s.version > item.gate.version then return STALE_SOURCE, 0 end
  if stale_rules then return STALE_RULES, 0 end
  if not r then return create(s, item, nil) end
  local l = get_lane(r.lane)
  if r.state < DONE then return meet(item, r, l) end
  if get_source(l.uid).deleted then return create(s, item, r) end
  if not again(item, r) then return EXISTS, r.state end
  return revisit(item, r, l)
end

local out = {}
for _ = 1, tonumber(ARGV[3]) do
  local code, state = submit(read_item(at))
  at = at + 14
  out[#out + 1] = code
  out[#out + 1] = state
end
finish(true)
return out
