-- Extends leases (dispatch.Leases.Renew), except those that a hold ends. A renewal writes
-- the deadline in place and does not raise the record's revision. The lease index keeps the
-- old deadline until a sweep updates it (expired.lua). The record decides who holds the
-- task: the lock is set to that holder, over any other value, unless it was deleted before
-- its deadline.
--
-- KEYS[1]  the shard key
-- ARGV     digests, packed (renew.go): per holder the number of its renewals and its
--          part of the digests, then the fence of each renewal; cursors, packed: the
--          number of the renewal, from 1, and its cursor; then each holder,
--          "<collector>/<client token>", followed by the keys of its tasks and locks
-- Returns  flat: for consecutive renewals for one full duration, that duration in ms and
--          their number; for any other renewal a list: lost, remaining ms, cancel,
--          duration. lost: 0 no, 1 unknown task, 2 not leased, 3 taken, 4 max hold,
--          5 lock deleted, 100 + result if the token is that of the lease that
--          settled last. The first two values are negative if the client token must be
--          recorded for longer, in a store of several shards (claim.go)
-- Cost     3 commands a renewal; at most 500 renewals

-- What is read of a record: the digest, whose part that is the holder's stands with
-- the terms, which leases of a grant mostly share: of the lease, and of the record
-- within it version and state, flags, result and cancel. Places as Redis counts them,
-- in digits, since Redis is slow to print numbers: the end of that; the deadline; the
-- flags.
local READ, READ_BYTES = '>BI8c35', LEASE + AT.cancel
local READ_TO, DEADLINE, FLAGS = (READ_BYTES - 1) .. '', (AT.deadline - 1) .. '', (LEASE + AT.flags - 1) .. ''

-- A lease that goes on for longer than that from its grant has its client token noted at
-- each of those marks that its deadline passes: coveredLease, prolongEach of renew.go.
local COVERED, PROLONG_EACH = 360000, 60000

local HELD, DELETED = 4, 5 -- the others: lost_by
local read, try -- struct.unpack, redis.pcall
local name, holder -- of a holder, and its part of the digests

-- The terms that were read last ('' = none yet), and what a renewal by them does: why
-- it is refused (0 = it is not), until when the lease goes on, in digits and as the
-- record has it, too, and what is answered.
local terms, by, deadline, duration, flags, cancel, lost, to, digits, packed, answer
local read_terms
do
  local TERMS = '>c8I6I6I4I4I4BBB'

  function read_terms(of)
    local granted, hold, _
    terms = of
    by, granted, deadline, duration, hold, _, flags, _, cancel = read(TERMS, of)
    to = min(now + duration, granted + hold)
    lost = flags % 32 >= LOCK_DELETED and DELETED or to <= now and HELD or 0
    to = cancel == CANCEL_HELD and deadline or max(to, deadline)
    digits, packed = decimal(to), struct.pack('>I6', to)
    local left = lost == 0 and max(to - now, 0) or 0
    local long = to - granted > COVERED and floor(to / PROLONG_EACH) > floor(deadline / PROLONG_EACH)
    if lost == 0 and cancel == 0 and left == duration then answer = long and -duration or duration
    else answer = { lost, long and -left or left, cancel, duration } end
  end
end

-- The collector's cursor for the next attempt; empty clears it.
local function keep_cursor(task, cursor)
  local key, has = details_key(string.sub(task, #task_key('') + 1)), flags % 8 >= DETAILS
  if not has then
    if cursor == '' then return end
    call('DEL', key)
    call('SETRANGE', task, FLAGS, string.char(flags + DETAILS))
  end
  if cursor == '' then call('HDEL', key, 'c') else call('HSET', key, 'c', cursor) end
end

local lost_by
do
  local UNKNOWN, NOT_LEASED, TAKEN, BY_RESULT = 1, 2, 3, 100

  -- Why a lease is none of the holder's.
  function lost_by(task, digest)
    local h = call('GETRANGE', task, 0, LEASE + HEADER - 1)
    if #h < HEADER then return { UNKNOWN, 0, 0, 0 } end
    local from = is_leased(h) and LEASE or 0
    if string.sub(h, from + AT.last, from + AT.last + DIGEST - 1) == digest then
      return { BY_RESULT + string.byte(h, from + AT.result), 0, 0, 0 }
    end
    return { from > 0 and TAKEN or NOT_LEASED, 0, 0, 0 }
  end
end

-- Ends a lease whose lock was deleted by hand: its deadline is now.
local function end_by_hand(task)
  call('SETRANGE', task, DEADLINE, struct.pack('>I6', now))
  call('SETRANGE', task, FLAGS, string.char(flags + LOCK_DELETED))
  local lane = decimal(record_lane(call('GET', task)))
  call('ZADD', tasks_key(lane), 'XX', LEASED_FROM + now, suffix_of(task))
  call('ZADD', LEASES, 'LT', now, lane)
  return { DELETED, 0, cancel, duration }
end

-- What a renewal is answered. (The lock is tried: somebody may have set it to what is no
-- string.)
local function renew(task, lock, fence, cursor)
  local h = call('GETRANGE', task, '0', READ_TO)
  local version, its, of
  if #h == READ_BYTES then version, its, of = read(READ, h) end
  if its == fence and version == LEASED_RECORD and of ~= terms then read_terms(of) end
  if its ~= fence or version ~= LEASED_RECORD or by ~= holder then
    return lost_by(task, struct.pack('>BI8', LEASED_RECORD, fence) .. holder)
  end
  if lost > 0 then return answer end
  local token = name .. '/' .. decimal(fence)
  local ends = cancel == CANCEL_HELD -- and its lock stays as it is
  local stands = ends and call('EXISTS', lock) == 1 or not ends and try('GETEX', lock, 'PXAT', digits)
  if not stands and deadline > now then return end_by_hand(task) end
  if not ends and stands ~= token then call('SET', lock, token, 'PXAT', digits) end
  if to ~= deadline then call('SETRANGE', task, DEADLINE, packed) end
  if cursor then keep_cursor(task, cursor) end
  return answer
end

-- The cursors that come with renewals, by the number of those.
local function read_cursors(from)
  local of, at = {}, 1
  while at <= #from do
    local n, cursor
    n, cursor, at = read('>I2I4c0', from, at)
    of[n] = cursor
  end
  return of
end

-- at each call
read, try, terms = struct.unpack, redis.pcall, ''
local digests, cursors, out, last, n, at, arg = ARGV[1], read_cursors(ARGV[2]), {}, 0, 0, 1, 3
local told, row -- to the last renewal, and to how many in a row
while at <= #digests do
  local many, fence
  many, holder, at = read('>I2c8', digests, at)
  name, arg = ARGV[arg], arg + 1
  for k = n + 1, n + many do
    fence, at = read('>I8', digests, at)
    local a = renew(ARGV[arg], ARGV[arg + 1], fence, cursors[k])
    arg = arg + 2
    if a == told and row > 0 then
      row = row + 1
      out[last] = row
    else
      told, row, last = a, 0, last + 1
      out[last] = a
      if type(a) == 'number' then row, last, out[last + 1] = 1, last + 1, 1 end
    end
  end
  n = n + many
end
return out
