-- The record of a task: a lease while it is leased, the header, the body that only Go
-- reads, and the end of its last lease, if any (SHAPE.md; internal/record has the same
-- layout). A grant puts the lease before the record and the holder, "<collector>/<client
-- token>", behind it, and changes nothing of it.
record.WAITING, record.LEASED, record.DONE, record.DEAD, record.CANCELED = 1, 3, 4, 5, 6
record.LEASE, record.HEADER, record.END = 41, 47, 41

-- What the record of a leased task begins with; others begin with their version, 1.
record.MARK = 2

-- A digest names a lease: the mark, the fence, and the holder's 8 bytes that Go computes.
-- So a leased record begins with its digest, and no other does.
record.NO_DIGEST = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
-- What counts failures, expirations and the like: only Go reads it.
record.NO_COUNTERS = '\0\0\0\0\0\0\0\0\0'

-- The bits of the flags.
record.RECURRING, record.AGAIN, record.DETAILS, record.HISTORY, record.ENDED, record.BEHIND = 1, 2, 4, 8, 16, 32
record.CANCEL_HELD = 3 -- dispatch.CancelHeld

local LEASE, HEADER, END, MARK = record.LEASE, record.HEADER, record.END, record.MARK
local NO_DIGEST, NO_COUNTERS = record.NO_DIGEST, record.NO_COUNTERS
local FORMAT = '>BBBI4I4I6I6I3BI2I2I6I6I2I2'
local LEASE_FORMAT, END_FORMAT = '>c17I6I6I4I4BBI2', '>BI4I4c9I6c17'

function record.is_leased(raw) return byte(raw) == MARK end

-- Whether there is a record, and all of its header.
function record.is_whole(raw) return raw and #raw >= HEADER and (byte(raw) ~= MARK or #raw >= LEASE + HEADER) end

-- The number of the source and the name of the queue, of a record whose header begins
-- after so many bytes.
function record.lane(raw, from)
  local n, at, size = parse('>I4', raw, from + 8), parse('>I2I2', raw, from + 44)
  return n, sub(raw, from + HEADER + 1 + at, from + HEADER + at + size)
end

-- The end of the last lease of a record without holder, and where its body ends.
local function read_end(raw, ended, last)
  if not ended then return last, 0, 0, 0, NO_COUNTERS, 0, NO_DIGEST end
  return last - END, parse(END_FORMAT, raw, last - END + 1)
end

function record.read(raw)
  if not record.is_whole(raw) then return nil end
  local digest, granted, deadline, duration, hold, cancel, lock_deleted, name, from = NO_DIGEST, 0, 0, 0, 0, 0, 0, 0, 1
  local leased = byte(raw) == MARK
  if leased then digest, granted, deadline, duration, hold, cancel, lock_deleted, name, from = parse(LEASE_FORMAT, raw) end
  local version, state, flags, revision, n, due, created, size, priority, depth, core, run, first_due, queue_at, queue_size, at =
    parse(FORMAT, raw, from)
  local ended = flags % 32 >= 16
  if ended and #raw - name - END + 1 < at then return nil end
  local last, result, cycle, attempt, counters, settled_at, last_digest = read_end(raw, ended, #raw - name)
  if leased then revision, attempt, state = (revision + 1) % 4294967296, (attempt + 1) % 4294967296, record.LEASED end
  return {
    version = version, state = state, revision = revision, source = n, due = due, created = created, size = size,
    priority = priority, depth = depth, core = core, run = run, first_due = first_due, queue_at = queue_at,
    queue = sub(raw, at + queue_at, at + queue_at + queue_size - 1), recurring = flags % 2 >= 1, again = flags % 4 >= 2,
    details = flags % 8 >= 4, history = flags % 16 >= 8, behind = flags % 64 >= 32, result = result, cycle = cycle,
    attempt = attempt, counters = counters, settled_at = settled_at, last = last_digest, digest = digest, granted = granted,
    deadline = deadline, duration = duration, hold = hold, cancel = cancel, lock_deleted = lock_deleted == 1,
    holder = sub(raw, #raw - name + 1), body = sub(raw, at, last),
  }
end

function record.pack(r)
  local lease, state, less, last = '', r.state, 0, ''
  if state == record.LEASED then
    state, less = record.WAITING, 1
    lease = pack(LEASE_FORMAT, r.digest, r.granted, r.deadline, r.duration, r.hold, r.cancel, r.lock_deleted and 1 or 0, #r.holder)
  end
  local attempt, cycle, settled_at = (r.attempt - less) % 4294967296, r.cycle, r.settled_at
  local ended = attempt > 0 or cycle > 0 or settled_at > 0 or r.result > 0 or r.last ~= NO_DIGEST or r.counters ~= NO_COUNTERS
  if ended then last = pack(END_FORMAT, r.result, cycle, attempt, r.counters, settled_at, r.last) end
  local flags = (r.recurring and 1 or 0) + (r.again and 2 or 0) + (r.details and 4 or 0) + (r.history and 8 or 0)
    + (ended and 16 or 0) + (r.behind and 32 or 0)
  return lease .. pack(FORMAT, r.version, state, flags, (r.revision - less) % 4294967296, r.source, r.due, r.created, r.size,
    r.priority, r.depth, r.core, r.run, r.first_due, r.queue_at, #r.queue) .. r.body .. last .. r.holder
end

-- Writes the record; a plain SET, so it has no TTL.
function record.write(id, r) call('SET', key.task(id), record.pack(r)) end

-- Ends the lease in the record.
function record.end_lease(r)
  r.digest, r.granted, r.deadline, r.duration, r.hold, r.holder = NO_DIGEST, 0, 0, 0, 0, ''
  r.cancel, r.lock_deleted = 0, false
end

-- Where a task comes in its lane (dispatch/scheduling.md).
function record.rank(r) return r.behind and 20 or (9 - r.priority) * 2 + (r.recurring and 0 or 1) end

-- The state that callers see: the due time splits waiting into scheduled, 1, and ready, 2.
function record.visible(r)
  if r.state == record.WAITING and r.due <= now then return 2 end
  return r.state
end

-- The part of a task id behind the slot, which all tasks of a queue share.
function record.suffix(id) return sub(id, -26) end
