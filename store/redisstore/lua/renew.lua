-- Extends leases (dispatch.Leases.Renew). A renewal is no change of the record:
-- it writes the deadline in place.
--
-- KEYS[1]  the shard key
-- ARGV     per renewal: id, lease token, its digest (16 bytes), cursor
-- Returns  flat, per renewal: lost, remaining ms, cancel, duration ms. lost: 0 no,
--          1 unknown task, 2 not leased, 3 taken, 4 max hold, 5 lock deleted,
--          100 + result when the token is that of the lease that settled last
-- Cost     6 commands a renewal; at most 500
--
-- uses: base drain keys record
local MEMORY = 600000
local index, grants, out = {}, {}, {}

local function answer(lost, remaining, cancel, duration)
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = lost, remaining, cancel, duration
end

-- The collector's cursor for the next attempt; empty clears it.
local function keep_cursor(id, flags, cursor)
  local key, has = details_key(id), flags % 8 >= 4
  if not has then
    if cursor == '' then return end
    call('DEL', key)
    call('SETRANGE', task_key(id), AT_FLAGS - 1, string.char(flags + DETAILS))
  end
  if cursor == '' then call('HDEL', key, 'c') else call('HSET', key, 'c', cursor) end
end

local function lost_by(state, result, last, digest)
  if digest == last then return 100 + result end
  return state == LEASED and 3 or 2
end

local function renew(id, token, digest, cursor)
  local key = task_key(id)
  local h = call('GETRANGE', key, 0, HEADER - 1)
  if #h < HEADER then return answer(1, 0, 0, 0) end
  local state, flags, _, result, cancel, lane = struct.unpack('>BBBBBI4', h, AT_STATE)
  local last, current, granted, deadline, duration, hold = struct.unpack('>c16c16I6I6I4I4', h, AT_LAST)
  if state ~= LEASED or current ~= digest then return answer(lost_by(state, result, last, digest), 0, 0, 0) end
  if flags % 32 >= 16 then return answer(5, 0, cancel, duration) end
  local to = min(now + duration, granted + hold)
  if to <= now then return answer(4, 0, cancel, duration) end
  to = max(to, deadline)
  local lock, member = lock_key(id), id .. ':' .. decimal(lane)
  if not call('SET', lock, token, 'XX', 'PXAT', decimal(to)) then
    if deadline > now then
      call('SETRANGE', key, AT_DEADLINE - 1, struct.pack('>I6', now))
      call('SETRANGE', key, AT_FLAGS - 1, string.char(flags + LOCK_DELETED))
      call('ZADD', LEASES, now, member)
      return answer(5, 0, cancel, duration)
    end
    call('SET', lock, token, 'PXAT', decimal(to))
  end
  call('SETRANGE', key, AT_DEADLINE - 1, struct.pack('>I6', to))
  if cursor then keep_cursor(id, flags, cursor) end
  index[#index + 1], index[#index + 2] = to, member
  local holder = string.match(token, '^(.*)/%d+$')
  grants[holder] = max(grants[holder] or 0, to)
  answer(0, to - now, cancel, duration)
end

for i = 1, #ARGV, 4 do renew(ARGV[i], ARGV[i + 1], ARGV[i + 2], optional(ARGV[i + 3])) end
for i = 1, #index, 2000 do call('ZADD', LEASES, unpack(index, i, min(i + 1999, #index))) end
-- The note of a grant outlives its last lease.
for holder, to in pairs(grants) do call('PEXPIREAT', P .. 'grant:' .. holder, decimal(to + MEMORY - 1), 'GT') end
return out
