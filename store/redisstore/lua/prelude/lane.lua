-- Sources and lanes: each a record, read once a script.
local lanes = {} -- by number
-- The first n_lanes are those of this call. The others are of earlier calls, to be used
-- again: a table of many fields is slow to make, to grow and to free.
local lane_list, n_lanes = {}, 0
local KEPT = 200 -- of lanes, and of queues
-- What is written at the end, flat: keys of strings and their values.
local writes = {}
local get_queue, read_all, save_queues, part -- in queue.lua
local front -- in front.lua
local write_taken -- in parts/ahead.lua
local named -- in named.lua

-- Lane ready and lane later (dispatch/scheduling.md) are one set, in which every task
-- that is not settled has one place: behind the ready ones are those that are due later,
-- at LATER_FROM + their score; behind these the leased ones, at LEASED_FROM + deadline;
-- and the orphans.
local LATER_FROM, LEASED_FROM, ORPHAN_FROM = 562949953421312, 1125899906842624, 2251799813685248 -- 2^49, 2^50, 2^51

-- What the shard holds of a source. One that it does not know (any more) is
-- deleted.
local pack_gate, save_sources
do
  -- Id, version, pool, priority, held until, deleted, limit, lease, hold, bytes
  -- that are joined to each task, how long settled tasks are remembered.
  local GATE = '>I2c0dI2c0BdBddddd'
  -- Counts by state; one-shot tasks that wait or are leased, and those that were
  -- limited; failures in a row, and when it last succeeded and failed.
  local COUNTS = '>i6i6i6i6i6i6i6i6i6i6i6'

  function pack_gate(g)
    return struct.pack(GATE, #g.id, g.id, g.version, #g.pool, g.pool, g.priority, g.held, g.deleted, g.limit, g.lease, g.hold,
      g.joined, g.remember)
  end

  local NO_GATE = { known = false, id = '', version = 0, pool = '', priority = 5, held = 0, deleted = true, limit = 0, lease = 0,
    hold = 0, joined = 0, remember = 0 }
  NO_GATE.__index = NO_GATE

  -- Gates that were unpacked by any call: they seldom change.
  local MOST_GATES = 100
  local gates, n_gates = {}, 0

  local function unpack_gate(packed)
    local id, version, pool, priority, held, deleted, limit, lease, hold, joined, remember = struct.unpack(GATE, packed)
    local g = {
      known = true, id = id, version = version, pool = pool, priority = priority, held = until_(held), deleted = deleted == 1,
      limit = limit, lease = lease, hold = hold, joined = joined, remember = remember,
    }
    g.__index = g
    if n_gates == MOST_GATES then gates, n_gates = {}, 0 end
    gates[packed], n_gates = g, n_gates + 1
    return g
  end

  -- In one constructor, as read_counts.
  local function read_source_counts(packed)
    local scheduled, ready, leased, done, dead, canceled, out, limited, row, success, failure = struct.unpack(COUNTS, packed or ZEROS)
    return {
      scheduled = scheduled, ready = ready, leased = leased, done = done, dead = dead, canceled = canceled, out = out,
      limited = limited, row = row, success = success, failure = failure, changed = false,
    }
  end

  -- A source has what its gate has. The counts are read along, since most calls change
  -- them.
  function get_source(uid)
    local s = sources[uid]
    if s then return s end
    local f = call('HMGET', source_key(uid), 'gate', 'counts', 'named')
    local packed = f[1]
    s = setmetatable({
      uid = uid, counts = read_source_counts(packed and f[2]), named = packed and f[3] and named.read(f[3]), terms = false, gone = false,
    }, packed and (gates[packed] or unpack_gate(packed)) or NO_GATE)
    sources[uid] = s
    return s
  end

  -- Writes what was counted of sources. One that was forgotten keeps no counts.
  function save_sources()
    for uid, s in pairs(sources) do
      local c = s.counts
      if c.changed and s.known then
        call('HSET', source_key(uid), 'counts', struct.pack(COUNTS, c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.out,
          c.limited, c.row, c.success, c.failure))
      end
    end
  end
end

-- Of a lane, open and wait are its scores in the sets of its queue, rank is that of the
-- first of lane ready, and later the score of the first of lane later:
-- false = none, nil = not known (yet). name is the number as Redis has it in keys and
-- sets.
local get_lane, new_lane, lay_lane, save_lanes
do
  -- Uid, queue, slot, pool, what it ever had (a bit each of settled, orphaned), rank
  -- (NO_RANK = none), later (0 = none).
  local LANE, NO_RANK = '>I2c0I2c0I2c0I2c0BBd', 255
  local SETTLED, ORPHANED = 1, 2

  local function pack_lane(l)
    local had = (l.settled and SETTLED or 0) + (l.orphaned and ORPHANED or 0)
    return struct.pack(LANE, #l.uid, l.uid, #l.queue, l.queue, #l.slot, l.slot, #l.pool, l.pool, had,
      front.rank(l) or NO_RANK, front.later(l) or 0)
  end

  -- A lane with only its number known. What a call does with it begins with nothing. It counts once it is there: a
  -- number that is none ends the call, and the next one has to find in order what this one leaves.
  function new_lane(n, name)
    local at = n_lanes + 1
    local l = lane_list[at] or {}
    l.n, l.name, l.key, l.open, l.wait, l.dirty, l.removed, l.touched, l.fresh = n, name, lane_key(name), nil, nil, false, false, false, false
    l.left, l.entering, l.comes, l.comes_later, l.ahead, l.answered, l.taking = false, false, false, false, false, false, false
    lanes[n] = l
    lane_list[at], n_lanes = l, at
    return l
  end

  -- Unpacks the record of a lane; its texts are '' if it was lost.
  function lay_lane(l, packed)
    local had, rank, later = 0, NO_RANK, 0
    if packed then l.uid, l.queue, l.slot, l.pool, had, rank, later = struct.unpack(LANE, packed)
    else l.uid, l.queue, l.slot, l.pool = '', '', '', '' end
    l.settled, l.orphaned, l.rank, l.later = had % 2 >= SETTLED, had >= ORPHANED, rank < NO_RANK and rank, later > 0 and later
    return l
  end

  function get_lane(n)
    local l, name = lanes[n], n
    if l then return l end
    n = tonumber(n)
    if lanes[n] then return lanes[n] end
    if n == name then name = decimal(n) end
    l = new_lane(n, name)
    return lay_lane(l, call('GET', l.key))
  end

  -- Notes the records of lanes that were changed, to be written. The lanes of a
  -- deleted source keep their end.
  function save_lanes()
    for i = 1, n_lanes do
      local l = lane_list[i]
      if l.dirty then
        local packed = pack_lane(l)
        l.dirty = false
        if get_source(l.uid).deleted then call('SET', l.key, packed, 'KEEPTTL')
        else writes[#writes + 1], writes[#writes + 2] = l.key, packed end
      end
    end
  end
end

local function flush_writes()
  call_for_all('MSET', nil, writes)
  writes = {}
end

-- Lane sets hold the part of a task id after the slot, which all tasks of a
-- lane share.
local function suffix_of(id) return string.sub(id, -26) end
local function id_of(l, suffix) return l.slot .. '-' .. suffix end

-- The lease index has lanes, each at most at the first deadline among its leases,
-- since nothing is written there when a lease ends; and orphans, with their lane.
local orphans = {}
function orphans.member(l, id) return id .. ':' .. l.name end

-- Whether the lock stands that has so long to go, by PTTL: -1 is one without an end. And
-- how long until an orphan of that lock is looked at again (dispatch.OrphanLook).
function orphans.locked(ttl) return ttl == -1 or ttl > 0 end
function orphans.next_look(ttl) return (ttl < 0 or ttl > 30000) and 30000 or ttl end

local function split_member(member)
  local at = string.find(member, ':', 1, true)
  if at then return string.sub(member, 1, at - 1), string.sub(member, at + 1) end
  return nil, member
end

local function lane_priority(s, rank) return max(0, min(9, s.priority + 9 - floor(rank / 2) - 5)) end

-- at each call
if n_lanes > KEPT then
  lanes, lane_list = {}, {}
else
  for i = 1, n_lanes do lanes[lane_list[i].n] = nil end
end
n_lanes = 0
if writes[1] then writes = {} end
