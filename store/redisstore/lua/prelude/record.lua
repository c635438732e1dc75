-- The record of a task: one string of a fixed header, a body that only Go
-- reads, and while it is leased a tail with the lease token and the session of
-- its holder. record.go has the same layout.
local HEADER = 122
local FORMAT = '>BBBBBBI4I2I4I2I3I4I4I2I2I2BBBI6I6I6I6I6c16c16I6I6I4I4I2'
local WAITING, LEASED, DONE, DEAD, CANCELED = 1, 3, 4, 5, 6
local NO_DIGEST = string.rep('\0', 16)

-- The header fields that scripts read or write alone, by their position.
local AT_STATE, AT_FLAGS, AT_CANCEL, AT_LAST, AT_LEASE = 2, 3, 6, 69, 85
local AT_DEADLINE = 107
local DETAILS, HISTORY, LOCK_DELETED = 4, 8, 16

local function read_record(raw)
  if not raw or #raw < HEADER then return nil end
  local r, flags, core, tail = {}, nil, nil, nil
  r.version, r.state, flags, r.priority, r.result, r.cancel, r.lane, r.depth, r.revision, core, r.size,
    r.cycle, r.attempt, r.failures, r.expirations, r.throttled, r.given_up, r.expired_cycles, r.permanent_cycles,
    r.run, r.due, r.first_due, r.created, r.settled_at, r.last, r.digest,
    r.granted, r.deadline, r.duration, r.hold, tail = struct.unpack(FORMAT, raw)
  r.core = core
  r.recurring = flags % 2 >= 1
  r.again = flags % 4 >= 2
  r.details = flags % 8 >= 4
  r.history = flags % 16 >= 8
  r.lock_deleted = flags % 32 >= 16
  r.body = string.sub(raw, HEADER + 1, #raw - tail)
  r.tail = string.sub(raw, #raw - tail + 1)
  return r
end

local function pack_record(r)
  local flags = (r.recurring and 1 or 0) + (r.again and 2 or 0) + (r.details and DETAILS or 0)
    + (r.history and HISTORY or 0) + (r.lock_deleted and LOCK_DELETED or 0)
  return struct.pack(FORMAT, r.version, r.state, flags, r.priority, r.result, r.cancel, r.lane, r.depth, r.revision,
    r.core, r.size, r.cycle, r.attempt, r.failures, r.expirations, r.throttled, r.given_up, r.expired_cycles,
    r.permanent_cycles, r.run, r.due, r.first_due, r.created, r.settled_at, r.last, r.digest,
    r.granted, r.deadline, r.duration, r.hold, #r.tail) .. r.body .. r.tail
end

-- Writes the record; a plain SET, so it lives until it is told otherwise.
local function write_record(id, r)
  local raw = pack_record(r)
  call('SET', task_key(id), raw)
  return raw
end

-- A lease's 16 bytes: fence, and the holder's digest that Go computes.
local function digest_of(fence, holder) return struct.pack('>I8', fence) .. holder end

local function end_lease(r)
  r.digest, r.granted, r.deadline, r.duration, r.hold, r.tail = NO_DIGEST, 0, 0, 0, 0, ''
  r.lock_deleted = false
end

-- Who holds the lease: the collector, the client token and the session.
local function holder_of(r)
  local collector, token, session = string.match(r.tail, '^([^/]*)/([^/]*)/%d+\n(.*)$')
  return collector or '', token or '', session or ''
end

local function rank_of(r) return (9 - r.priority) * 2 + (r.recurring and 0 or 1) end

-- The state that callers see: waiting is told apart by the due time. 1 is
-- SCHEDULED, 2 is READY.
local function visible_state(r)
  if r.state == WAITING and r.due <= now then return 2 end
  return r.state
end
