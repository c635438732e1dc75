-- The record of a task: one string of a fixed header, a body that only Go
-- reads, and while it is leased a tail with the lease token and the session of
-- its holder. record.go has the same layout.
local HEADER = 122
local FORMAT = '>BBBBBBI4I2I4I2I3I4I4c9I6I6I6I6I6c16c16I6I6I4I4I2'
local WAITING, LEASED, DONE, DEAD, CANCELED = 1, 3, 4, 5, 6
local NO_DIGEST = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- The header fields that scripts read or write alone, by their position.
local AT = { state = 2, flags = 3, cancel = 6, lane = 7, last = 69, lease = 85, deadline = 107 }
local DETAILS, HISTORY, LOCK_DELETED = 4, 8, 16

-- What counts failures, expirations and the like: only Go reads it.
local NO_COUNTERS = '\0\0\0\0\0\0\0\0\0'

-- One constructor with every field makes a table of the right size at once. More
-- than 32 fields would double it.
local function read_record(raw)
  if not raw or #raw < HEADER then return nil end
  local version, state, flags, priority, result, cancel, lane, depth, revision, core, size, cycle, attempt, counters,
    run, due, first_due, created, settled_at, last, digest, granted, deadline, duration, hold, tail =
    struct.unpack(FORMAT, raw)
  return {
    version = version, state = state, priority = priority, result = result, cancel = cancel, lane = lane,
    depth = depth, revision = revision, core = core, size = size, cycle = cycle, attempt = attempt,
    counters = counters, run = run, due = due, first_due = first_due, created = created, settled_at = settled_at,
    last = last, digest = digest, granted = granted, deadline = deadline, duration = duration, hold = hold,
    recurring = flags % 2 >= 1, again = flags % 4 >= 2, details = flags % 8 >= DETAILS,
    history = flags % 16 >= HISTORY, lock_deleted = flags % 32 >= LOCK_DELETED,
    body = string.sub(raw, HEADER + 1, #raw - tail), tail = tail > 0 and string.sub(raw, -tail) or '',
  }
end

local function pack_record(r)
  local flags = (r.recurring and 1 or 0) + (r.again and 2 or 0) + (r.details and DETAILS or 0)
    + (r.history and HISTORY or 0) + (r.lock_deleted and LOCK_DELETED or 0)
  return struct.pack(FORMAT, r.version, r.state, flags, r.priority, r.result, r.cancel, r.lane, r.depth, r.revision,
    r.core, r.size, r.cycle, r.attempt, r.counters, r.run, r.due, r.first_due, r.created, r.settled_at, r.last, r.digest,
    r.granted, r.deadline, r.duration, r.hold, #r.tail) .. r.body .. r.tail
end

-- The record of a task that was submitted just now, and waits.
local new_record
do
  local NEW = '>BBBBBBI4I2I4I2I3c8c9I6I6I6I6c60'
  local NO_CYCLE, NEVER_LEASED = '\0\0\0\0\0\0\0\0', NO_DIGEST .. NO_DIGEST .. NO_DIGEST .. '\0\0\0\0\0\0\0\0\0\0\0\0'
  function new_record(lane, item)
    return struct.pack(NEW, 1, WAITING, item.recurring and 1 or 0, item.priority, 0, 0, lane, item.depth, 1,
      item.core, item.size, NO_CYCLE, NO_COUNTERS, item.run, item.due, item.first_due, now, NEVER_LEASED) .. item.body
  end
end

-- What a grant needs of a record: state, flags, lane, revision, size, attempt;
-- nil for none.
local function read_ungranted(raw)
  if not raw or #raw < HEADER then return nil end
  local state, flags, _, _, _, lane, _, revision, _, size, _, attempt = struct.unpack('>BBBBBI4I2I4I2I3I4I4', raw, AT.state)
  return state, flags, lane, revision, size, attempt
end

-- A lease's part of the header after the fence, with the bytes of the tail.
local function pack_lease(holder, granted, deadline, duration, hold, tail)
  return holder .. struct.pack('>I6I6I4I4I2', granted, deadline, duration, hold, tail)
end

-- The waiting record with a new lease: only the changed fields are packed.
local lease_record
do
  local BEGIN = '\1\3' -- version and state
  local AT_REVISION, AT_CORE, AT_ATTEMPT, AT_FAILURES = 13, 17, 26, 30
  function lease_record(raw, revision, attempt, fence, lease, tail)
    local sub, pack = string.sub, struct.pack
    return BEGIN .. sub(raw, AT.flags, AT_REVISION - 1) .. pack('>I4', revision)
      .. sub(raw, AT_CORE, AT_ATTEMPT - 1) .. pack('>I4', attempt) .. sub(raw, AT_FAILURES, AT.lease - 1)
      .. pack('>I8', fence) .. lease .. sub(raw, HEADER + 1) .. tail
  end
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

-- Who holds the lease, as the lease token begins.
local function collector_of(r) return string.match(r.tail, '^[^/]*') end

local function rank_of(r) return (9 - r.priority) * 2 + (r.recurring and 0 or 1) end

-- The state that callers see: waiting is told apart by the due time. 1 is
-- SCHEDULED, 2 is READY.
local function visible_state(r)
  if r.state == WAITING and r.due <= now then return 2 end
  return r.state
end
