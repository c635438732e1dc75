-- Extends leases (dispatch.Leases.Renew). A renewal is no change of the record:
-- it writes the deadline in place. The lease index stays behind, until a sweep
-- comes to it (expired.lua).
--
-- KEYS[1]  the shard key
-- ARGV     the holders, "<collector>/<client token>"; and at the end all renewals,
--          packed one after the other (renew.go): digest of the lease, number of
--          the holder, id, whether there is a cursor, and that
-- Returns  per renewal: the duration in ms when the lease goes on for all of it,
--          else lost, remaining ms, cancel, duration. lost: 0 no, 1 unknown task,
--          2 not leased, 3 taken, 4 max hold, 5 lock deleted, 100 + result when the
--          token is that of the lease that settled last
-- Cost     3 commands a renewal; at most 500
local MEMORY = 600000
local RENEWAL = '>c17I2Bc0BI4c0'
-- Places in a leased record as Redis counts them, in digits, since Redis is slow
-- to print numbers: the end of what is read of it, which has the last lease too;
-- its deadline; its flags.
local READ_TO, DEADLINE, FLAGS = (LEASE + AT.last + DIGEST - 2) .. '', (AT.deadline - 1) .. '', (LEASE + AT.flags - 1) .. ''

local UNKNOWN, NOT_LEASED, TAKEN, HELD, DELETED, BY_RESULT = 1, 2, 3, 4, 5, 100
local ends -- of grants, by holder

-- The instant in digits and as the record has it; mostly that of the last renewal.
local last_at, digits, packed
local function spell(at)
  if at ~= last_at then last_at, digits, packed = at, decimal(at), struct.pack('>I6', at) end
end

-- The collector's cursor for the next attempt; empty clears it.
local function keep_cursor(id, flags, cursor)
  local key, has = details_key(id), flags % 8 >= DETAILS
  if not has then
    if cursor == '' then return end
    call('DEL', key)
    call('SETRANGE', task_key(id), FLAGS, string.char(flags + DETAILS))
  end
  if cursor == '' then call('HDEL', key, 'c') else call('HSET', key, 'c', cursor) end
end

local function lost_by(h, digest)
  local from = is_leased(h) and LEASE or 0
  if string.sub(h, from + AT.last, from + AT.last + DIGEST - 1) == digest then
    return { BY_RESULT + string.byte(h, from + AT.result), 0, 0, 0 }
  end
  return { from > 0 and TAKEN or NOT_LEASED, 0, 0, 0 }
end

-- Ends a lease whose lock was deleted by hand: its deadline is now.
local function end_by_hand(id, flags)
  spell(now)
  call('SETRANGE', task_key(id), DEADLINE, packed)
  call('SETRANGE', task_key(id), FLAGS, string.char(flags + LOCK_DELETED))
  local lane = decimal(record_lane(call('GET', task_key(id))))
  call('ZADD', later_key(lane), 'XX', LEASED_FROM + now, suffix_of(id))
  call('ZADD', LEASES, 'LT', now, lane)
end

local function renew(id, holder, digest, cursor)
  local key, lock = task_key(id), lock_key(id)
  local h = call('GETRANGE', key, '0', READ_TO)
  if #h < HEADER then return { UNKNOWN, 0, 0, 0 } end
  if string.sub(h, 1, DIGEST) ~= digest then return lost_by(h, digest) end
  local granted, deadline, duration, hold = struct.unpack('>I6I6I4I4', h, DIGEST + 1)
  local flags, _, cancel = string.byte(h, LEASE + AT.flags, LEASE + AT.cancel)
  if flags % 32 >= LOCK_DELETED then return { DELETED, 0, cancel, duration } end
  local to = min(now + duration, granted + hold)
  if to <= now then return { HELD, 0, cancel, duration } end
  to = max(to, deadline)
  spell(to)
  if call('PEXPIREAT', lock, digits) == 0 then
    if deadline > now then
      end_by_hand(id, flags)
      return { DELETED, 0, cancel, duration }
    end
    call('SET', lock, ARGV[holder] .. '/' .. decimal(struct.unpack('>I8', digest, 2)), 'PXAT', digits)
  end
  if to ~= deadline then call('SETRANGE', key, DEADLINE, packed) end
  if cursor then keep_cursor(id, flags, cursor) end
  if to > (ends[holder] or 0) then ends[holder] = to end
  if cancel == 0 and to - now == duration then return duration end
  return { 0, to - now, cancel, duration }
end

-- at each call
local out, n, at, renewals = {}, 0, 1, ARGV[#ARGV]
ends = {}
while at <= #renewals do
  local digest, holder, id, given, cursor
  digest, holder, id, given, cursor, at = struct.unpack(RENEWAL, renewals, at)
  n = n + 1
  out[n] = renew(id, holder, digest, given == 1 and cursor or nil)
end
-- The note of a grant outlives its last lease.
for holder, to in pairs(ends) do call('PEXPIREAT', grant_key(ARGV[holder]), decimal(to + MEMORY - 1), 'GT') end
return out
