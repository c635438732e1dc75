-- The record of a task: one string of a fixed header and a body that only Go
-- reads. A leased task's record stands between its lease and the name of the
-- holder, "<collector>/<client token>": a grant changes nothing of it, so its
-- revision and its attempt count one more. internal/record has the same layout.
local HEADER, LEASE = 85, 39
local WAITING, LEASED, DONE, DEAD, CANCELED = 1, 3, 4, 5, 6

-- What the record of a leased task begins with; others begin with their version, 1.
local LEASED_RECORD = 2

-- A digest names a lease: LEASED_RECORD, fence, and the holder's 8 bytes that Go
-- computes. So a leased record begins with its digest, and no other does.
local DIGEST = 17
local NO_DIGEST = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- The fields that scripts read or write alone, by their position: of the header,
-- and of the lease.
local AT = { state = 2, flags = 3, result = 4, cancel = 5, lane = 14, last = 37, size = 66, core = 72, deadline = 24 }
local DETAILS, HISTORY, LOCK_DELETED = 4, 8, 16

-- What counts failures, expirations and the like: only Go reads it.
local NO_COUNTERS = '\0\0\0\0\0\0\0\0\0'

-- Whether a record, or the begin of one, is that of a leased task.
local function is_leased(raw) return string.byte(raw) == LEASED_RECORD end

-- Whether there is a record, and all of its header.
local function is_whole(raw) return raw and #raw >= HEADER and (#raw >= LEASE + HEADER or not is_leased(raw)) end

local read_record, pack_record
do
  local FORMAT, LEASE_FORMAT = '>BBBBBI4I4I4I4c9I6c17I6I6I3BI2I2I6I6', '>c17I6I6I4I4I2'

  -- One constructor with every field makes a table of the right size at once. More
  -- than 32 fields would double it.
  function read_record(raw)
    if not is_whole(raw) then return nil end
    local digest, granted, deadline, duration, hold, name, from = NO_DIGEST, 0, 0, 0, 0, 0, 1
    local leased = is_leased(raw)
    if leased then digest, granted, deadline, duration, hold, name, from = struct.unpack(LEASE_FORMAT, raw) end
    local version, state, flags, result, cancel, revision, cycle, lane, attempt, counters, settled_at, last, due, created,
      size, priority, depth, core, run, first_due, at = struct.unpack(FORMAT, raw, from)
    return {
      version = version, state = leased and LEASED or state, result = result, cancel = cancel,
      revision = leased and (revision + 1) % 4294967296 or revision, cycle = cycle,
      attempt = leased and (attempt + 1) % 4294967296 or attempt, counters = counters, settled_at = settled_at, last = last,
      due = due, created = created, lane = lane, size = size, priority = priority, depth = depth, core = core, run = run,
      first_due = first_due, digest = digest, granted = granted, deadline = deadline, duration = duration, hold = hold,
      recurring = flags % 2 >= 1, again = flags % 4 >= 2, details = flags % 8 >= DETAILS,
      history = flags % 16 >= HISTORY, lock_deleted = flags % 32 >= LOCK_DELETED,
      body = string.sub(raw, at, #raw - name), holder = string.sub(raw, #raw - name + 1),
    }
  end

  function pack_record(r)
    local flags = (r.recurring and 1 or 0) + (r.again and 2 or 0) + (r.details and DETAILS or 0)
      + (r.history and HISTORY or 0) + (r.lock_deleted and LOCK_DELETED or 0)
    local lease, state, less = '', r.state, 0
    if state == LEASED then
      lease, state, less = struct.pack(LEASE_FORMAT, r.digest, r.granted, r.deadline, r.duration, r.hold, #r.holder), WAITING, 1
    end
    return lease .. struct.pack(FORMAT, r.version, state, flags, r.result, r.cancel, (r.revision - less) % 4294967296, r.cycle,
      r.lane, (r.attempt - less) % 4294967296, r.counters, r.settled_at, r.last, r.due, r.created, r.size, r.priority,
      r.depth, r.core, r.run, r.first_due) .. r.body .. r.holder
  end
end

-- Writes the record; a plain SET, so it has no TTL.
local function write_record(id, r)
  local raw = pack_record(r)
  call('SET', task_key(id), raw)
  return raw
end

-- The number of the lane of a whole record.
local function record_lane(raw) return (struct.unpack('>I4', raw, is_leased(raw) and LEASE + AT.lane or AT.lane)) end

local CANCEL_HELD = 3 -- dispatch.CancelHeld

local function end_lease(r)
  r.digest, r.granted, r.deadline, r.duration, r.hold, r.holder = NO_DIGEST, 0, 0, 0, 0, ''
  r.lock_deleted = false
end

local function rank_of(r) return (9 - r.priority) * 2 + (r.recurring and 0 or 1) end

-- The state that callers see: the due time splits waiting into scheduled and ready. 1 is SCHEDULED, 2 is READY.
local function visible_state(r)
  if r.state == WAITING and r.due <= now then return 2 end
  return r.state
end
