-- Applies transitions: what becomes of tasks whose lease ends, or that wait
-- (dispatch.Leases.Apply).
--
-- KEYS[1]  the shard key
-- ARGV     per transition: id, numbers (transition.go), and optional memo, cursor,
--          last error, attempt
-- Returns  flat, per transition: code, prior result, state, due
-- Cost     O(log n) a transition; lanes and queues are placed once; at most 100
--
-- uses: base keys record counts settings heads lane queue gates placelane place task note finish
local APPLIED, CONFLICT, ALREADY, LOST, NOT_FOUND = 1, 2, 3, 4, 5
local HISTORY_LENGTH = 10
local R_EXPIRED, R_GIVEN_BACK, R_REVOKED, R_MAX_HOLD = 4, 5, 6, 7

local function read_transition(i)
  local t, bits = { id = ARGV[i] }, nil
  t.token, t.revision, bits, t.result, t.state, t.kind, t.due, t.delay, t.first_due, t.run, t.cycle, t.attempt,
    t.failures, t.expirations, t.throttled, t.given_up, t.expired_cycles, t.permanent_cycles, t.remember, t.fetch,
    t.retry_after, t.asked = struct.unpack('>c16I4BBBBI6I6I6I6I4I4I2I2I2BBBI6I6I6I4', ARGV[i + 1])
  t.expired, t.settled, t.shrink = bits % 2 >= 1, bits % 4 >= 2, bits % 8 >= 4
  t.clear_flags, t.success, t.failure = bits % 16 >= 8, bits % 32 >= 16, bits % 64 >= 32
  t.clear_error, t.has_due = bits % 128 >= 64, bits >= 128
  t.memo, t.cursor = optional(ARGV[i + 2]), optional(ARGV[i + 3])
  t.last_error, t.line = optional(ARGV[i + 4]), optional(ARGV[i + 5])
  return t
end

-- Why the transition does not apply; nil when it does.
local function refusal(t, r)
  if t.token == NO_DIGEST then
    if r.state ~= WAITING then return LOST end
  elseif r.state ~= LEASED or r.digest ~= t.token then
    return r.last == t.token and ALREADY or LOST
  elseif t.expired and r.deadline > now then
    return LOST
  end
  if r.revision ~= t.revision then return CONFLICT end
  return nil
end

local function set_detail(t, r, field, value)
  if value == nil then return end
  local key = details_key(t.id)
  if value == '' then
    if r.details then call('HDEL', key, field) end
    return
  end
  if not r.details then
    call('DEL', key)
    r.details = true
  end
  call('HSET', key, field, value)
end

local function write_details(t, r)
  set_detail(t, r, 'm', t.memo)
  set_detail(t, r, 'c', t.cursor)
  set_detail(t, r, 'e', t.last_error or (t.clear_error and '' or nil))
  if t.line then
    local key = history_key(t.id)
    if not r.history then
      call('DEL', key)
      r.history = true
    end
    if call('RPUSH', key, t.line) > HISTORY_LENGTH then call('LTRIM', key, -HISTORY_LENGTH, -1) end
  end
end

-- A DONE task keeps what decides its future and what shows it: URL, key, kind, memo.
local function shrink(t, r)
  r.body = string.sub(r.body, 1, r.core)
  if r.details then call('HDEL', details_key(t.id), 'c', 'e') end
  if r.history then call('DEL', history_key(t.id)) end
  r.history = false
end

local function note_source(uid, t)
  local s = get_source(uid)
  if not s.known then return end
  if t.success then note_success(s) end
  if t.failure then note_failure(s) end
end

local function end_of_lease(t, r, l)
  leave_leased(l, t.id, holder_of(r))
  lease_ended(get_queue(l.queue), t.kind, t.fetch, t.retry_after, r.deadline, t.asked > 0 and t.asked - 1 or nil)
  r.last, r.result = r.digest, t.result
  end_lease(r)
  if t.result == R_EXPIRED or t.result == R_MAX_HOLD then tally('expired', 1)
  elseif t.result ~= R_GIVEN_BACK and t.result ~= R_REVOKED then tally('settled', 1) end
end

local function apply(t, r)
  local l = get_lane(r.lane)
  if t.token == NO_DIGEST then leave_waiting(l, t.id) else end_of_lease(t, r, l) end
  r.revision, r.first_due, r.run = (r.revision + 1) % 4294967296, t.first_due, t.run
  r.cycle, r.attempt, r.failures, r.expirations, r.throttled = t.cycle, t.attempt, t.failures, t.expirations, t.throttled
  r.given_up, r.expired_cycles, r.permanent_cycles = t.given_up, t.expired_cycles, t.permanent_cycles
  if t.settled then r.settled_at = now end
  if t.clear_flags then r.cancel, r.again = 0, false end
  write_details(t, r)
  note_source(l.uid, t)
  if t.state >= DONE then
    r.state = t.state
    if t.shrink then shrink(t, r) end
    enter_settled(l, t.id, r, t.remember)
    outstanding(l.uid, r, -1)
    return
  end
  r.state = WAITING
  r.due = t.has_due and t.due or now + t.delay
  write_record(t.id, r)
  enter_waiting(l, t.id, r)
end

local out = {}
for i = 1, #ARGV, 6 do
  local t = read_transition(i)
  local r = read_record(call('GET', task_key(t.id)))
  local code = NOT_FOUND
  if r then
    code = refusal(t, r)
    if not code then
      apply(t, r)
      code = APPLIED
    end
  end
  local n = #out
  out[n + 1], out[n + 2] = code, code == ALREADY and r.result or 0
  out[n + 3], out[n + 4] = r and visible_state(r) or 0, r and r.state == WAITING and r.due or 0
end
flush_notes()
finish(true)
return out
