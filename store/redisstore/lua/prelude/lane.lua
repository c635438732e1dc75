-- Sources and lanes: each a record, read once a script.
local lanes
-- What is written at the end, flat: keys of strings and their values.
local writes
local get_queue, read_all, save_queues, part -- in queue.lua
local write_taken -- in parts/ahead.lua

-- Lane later holds, behind the tasks that are due later, the leased ones and the
-- orphans: whatever is not ready has one place in its lane.
local LEASED_FROM, ORPHAN_FROM = 1125899906842624, 2251799813685248 -- 2^50, 2^51

-- What the shard holds of a source. One that it does not know (any more) is
-- deleted.
local get_source
do
  -- The counts that are read along with a source, since most calls change them.
  local SOURCE_COUNTS = { 'ready', 'leased', 'done', 'out' }

  function get_source(uid)
    local s = sources[uid]
    if s then return s end
    local f = call('HMGET', source_key(uid), 'gate', unpack(SOURCE_COUNTS))
    if f[1] then
      local g = cmsgpack.unpack(f[1])
      s = {
        uid = uid, known = true, id = g[1], version = g[2], pool = g[3], priority = g[4], paused = until_(g[5]),
        deleted = g[6] == 1, limit = g[7], lease = g[8], hold = g[9], joined = g[10],
        remember = g[11], counts = {},
      }
      for i, field in ipairs(SOURCE_COUNTS) do s.counts[field] = tonumber(f[i + 1] or '0') end
    else
      s = { uid = uid, known = false, id = '', version = 0, pool = '', priority = 5, paused = 0, deleted = true,
        limit = 0, lease = 0, hold = 0, joined = 0, remember = 0, counts = {} }
    end
    sources[uid] = s
    return s
  end
end

-- Of a lane, open and wait are its scores in the sets of its queue, head and later
-- those of its first ready task and of the first of lane later: false = none,
-- nil = not known (yet). name is the number as Redis has it in keys and sets.
local get_lane, read_lane
do
  function read_lane(n, name, packed)
    local f = packed and cmsgpack.unpack(packed) or { '', '', '', '', false }
    local l = { n = n, name = name, uid = f[1], queue = f[2], slot = f[3], pool = f[4], settled = f[5],
      open = nil, wait = nil, head = nil, later = nil, dirty = false, removed = false }
    lanes[n] = l
    return l
  end

  function get_lane(n)
    n = tonumber(n)
    if lanes[n] then return lanes[n] end
    local name = decimal(n)
    return read_lane(n, name, call('GET', lane_key(name)))
  end
end

-- Notes the records of lanes that were changed, to be written. The lanes of a
-- deleted source keep their end.
local function save_lanes()
  for _, l in pairs(lanes) do
    if l.dirty then
      local packed = cmsgpack.pack({ l.uid, l.queue, l.slot, l.pool, l.settled })
      l.dirty = false
      if get_source(l.uid).deleted then call('SET', lane_key(l.name), packed, 'KEEPTTL')
      else writes[#writes + 1], writes[#writes + 2] = lane_key(l.name), packed end
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

-- The lease index names the lane too, so that a lease whose record is missing
-- can still be taken off its queue. The order is that of the ids.
local function lease_member(l, id) return id .. ':' .. l.name end

local function lane_priority(s, rank) return max(0, min(9, s.priority + 9 - floor(rank / 2) - 5)) end

-- at each call
lanes, writes = {}, {}
