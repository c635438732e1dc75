-- Renewals.
local LEASE = record.LEASE
local AT_DEADLINE, AT_LOCK_DELETED = 24, 39

-- Ends a lease whose lock was deleted by hand: its deadline is now.
local function end_by_hand(name, member_of)
  call('SETRANGE', name, AT_DEADLINE - 1, pack('>I6', now))
  call('SETRANGE', name, AT_LOCK_DELETED - 1, '\1')
  call('ZADD', key.leases, 'XX', now, member_of)
end

-- What is lost: 0 nothing, 1 unknown task, 2 not leased, 3 taken, 4 max hold, 5 lock
-- deleted, 100 + result if the token is that of the lease that settled last.
local UNKNOWN, NOT_LEASED, TAKEN, HELD, DELETED, BY_RESULT = 1, 2, 3, 4, 5, 100

-- Why a lease is none of the holder's.
local function lost_by(name, digest)
  local r = record.read(call('GET', name) or '')
  if not r then return { UNKNOWN, 0, 0, 0 } end
  if r.last == digest then return { BY_RESULT + r.result, 0, 0, 0 } end
  return { r.state == record.LEASED and TAKEN or NOT_LEASED, 0, 0, 0 }
end

-- The collector's cursor for the next attempt; empty clears it.
local function keep_cursor(name, cursor)
  local at = LEASE + 2 -- of the flags, as Redis counts
  local details, flags = key.details(sub(name, #key.task('') + 1)), byte(call('GETRANGE', name, at, at))
  if flags % 8 < record.DETAILS then
    if cursor == '' then return end
    call('DEL', details)
    call('SETRANGE', name, at, string.char(flags + record.DETAILS))
  end
  if cursor == '' then call('HDEL', details, 'c') else call('HSET', details, 'c', cursor) end
end

-- What is read of a record: the digest's mark, fence and holder, and the terms of the
-- lease, which those of a grant mostly share, up to their end.
local READ, READ_BYTES = '>BI8c30', LEASE - 2
local READ_TO, DEADLINE = '38', '23'
local TERMS = '>c8I6I6I4I4BB'

-- A lease that goes on for longer than that from its grant has its client token noted at
-- each of those marks that its deadline passes: coveredLease, prolongEach of renew.go.
local COVERED, PROLONG_EACH = 360000, 60000

-- What a renewal by those terms does: why it is refused (0 = it is not), until when the
-- lease goes on, in digits and as the record has it, too, and what is answered.
local function read_terms(of)
  local holder, granted, deadline, duration, hold, cancel, deleted = parse(TERMS, of)
  local to = min(now + duration, granted + hold)
  local lost = deleted == 1 and DELETED or to <= now and HELD or 0
  local ends = cancel == record.CANCEL_HELD
  to = ends and deadline or max(to, deadline)
  local left = lost == 0 and max(to - now, 0) or 0
  local long = to - granted > COVERED and floor(to / PROLONG_EACH) > floor(deadline / PROLONG_EACH)
  local answer = lost == 0 and cancel == 0 and left == duration and (long and -duration or duration)
    or { lost, long and -left or left, cancel, duration }
  return { of = of, holder = holder, deadline = deadline, duration = duration, lost = lost, ends = ends, cancel = cancel, to = to,
    digits = decimal(to), packed = pack('>I6', to), answer = answer }
end

-- What a renewal of holder (its bytes of the digest, its name) is answered. (The lock is
-- tried: somebody may have set it to what is no string.)
local terms
local function renew(name, lock_name, fence, holder, holder_name, cursor)
  local h = call('GETRANGE', name, '0', READ_TO)
  local mark, its, of
  if #h == READ_BYTES then mark, its, of = parse(READ, h) end
  if its == fence and mark == record.MARK and of ~= terms.of then terms = read_terms(of) end
  if its ~= fence or mark ~= record.MARK or terms.holder ~= holder then
    return lost_by(name, pack('>BI8', record.MARK, fence) .. holder)
  end
  local t = terms
  if t.lost > 0 then return t.answer end
  local value = holder_name .. '/' .. decimal(fence)
  local stands
  if t.ends then stands = call('EXISTS', lock_name) == 1 else stands = redis.pcall('GETEX', lock_name, 'PXAT', t.digits) end
  if not stands and t.deadline > now then
    local r, id = record.read(call('GET', name)), sub(name, #key.task('') + 1)
    end_by_hand(name, lease.member(id, r.source, r.queue))
    return { DELETED, 0, t.cancel, t.duration }
  end
  if not t.ends and stands ~= value then call('SET', lock_name, value, 'PXAT', t.digits) end
  if t.to ~= t.deadline then call('SETRANGE', name, DEADLINE, t.packed) end
  if cursor then keep_cursor(name, cursor) end
  return t.answer
end

-- The cursors that come with renewals, by the number of those.
local function read_cursors(packed)
  local of, at = {}, 1
  while at <= #packed do
    local n, cursor
    n, cursor, at = parse('>I2I4c0', packed, at)
    of[n] = cursor
  end
  return of
end

-- Extends leases (dispatch.Leases.Renew), except those that a hold ends. The record decides
-- who holds the task: the lock is set to that holder, over any other value, unless it was
-- deleted before its deadline.
--
-- ARGV     digests, packed (renew.go): per holder the number of its renewals and its
--          part of the digests, then the fence of each renewal; cursors, packed: the
--          number of the renewal, from 1, and its cursor; then each holder,
--          "<collector>/<client token>", followed by the keys of its tasks and locks
-- Returns  flat: for consecutive renewals for one full duration, that duration in ms and
--          their number; for any other renewal a list: lost, remaining ms, cancel,
--          duration. The first two values are negative if the client token must be
--          recorded for longer, in a store of several shards (claim.go)
-- Cost     3 commands a renewal; at most 500 renewals
function scripts.renew()
  local digests, out, last, n, at, arg, cursors = ARGV[1], {}, 0, 0, 1, 3, read_cursors(ARGV[2])
  local told, row -- to the last renewal, and to how many in a row
  terms = { of = '' }
  while at <= #digests do
    local many, holder, fence
    many, holder, at = parse('>I2c8', digests, at)
    local name = ARGV[arg]
    arg = arg + 1
    for k = n + 1, n + many do
      fence, at = parse('>I8', digests, at)
      local a = renew(ARGV[arg], ARGV[arg + 1], fence, holder, name, cursors[k])
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
end
