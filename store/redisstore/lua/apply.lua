-- Applies transitions of leased or waiting tasks (dispatch.Leases.Apply).
--
-- KEYS[1]  the shard key
-- ARGV     all transitions, packed one after the other (apply.go)
-- Returns  flat, for each transition: code, prior result, state, due
-- Cost     O(log n) a transition; lanes and queues are placed once; at most 100
--
-- uses: gather history note filtered
local APPLIED, CONFLICT, ALREADY, LOST, NOT_FOUND = 1, 2, 3, 4, 5
local R_EXPIRED, R_GIVEN_BACK, R_REVOKED, R_MAX_HOLD, R_REPLACED = 4, 5, 6, 7, 8
-- So many records are read at once, and written at once.
local AT_ONCE = 25

local function set(key, value) call('SET', key, value) end

local function write(key, value)
  local n = #writes
  writes[n + 1], writes[n + 2] = key, value
end

local read_transition, answer
do
  -- The bits of a transition (apply.go).
  local BITS = {
    expired = 1, settled = 2, shrink = 4, clear_flags = 8, success = 16, failure = 32, clear_error = 64, due = 128,
    memo = 256, cursor = 512,
  }
  local function says(t, what) return t.bits % (2 * BITS[what]) >= BITS[what] end

  local TRANSITION = '>c17I4I2BBBI4I4c9I6I6I6I6I6I6I6I4Bc0I4c0I4c0I4c0I4c0Bc0'

  -- In one constructor, as read_record.
  function read_transition(packed, from)
    local token, revision, bits, result, state, kind, cycle, attempt, counters, run, due, first_due, delay, remember,
      fetch, retry_after, asked, id, memo, cursor, failure, line, filtered, to = struct.unpack(TRANSITION, packed, from)
    return {
      id = id, key = task_key(id), token = token, revision = revision, bits = bits, result = result, state = state,
      kind = kind, cycle = cycle, attempt = attempt, counters = counters, run = run, due = due, first_due = first_due,
      delay = delay, remember = remember, fetch = fetch, retry_after = retry_after, asked = asked, memo = memo,
      cursor = cursor, failure = failure, line = line, filtered = filtered,
    }, to
  end

  -- Why the transition does not apply; nil when it does.
  local function refusal(t, r)
    if t.token == NO_DIGEST then
      if r.state ~= WAITING then return LOST end
    elseif r.state ~= LEASED or r.digest ~= t.token then
      return r.last == t.token and ALREADY or LOST
    elseif says(t, 'expired') and r.deadline > now then
      return LOST
    end
    if r.revision ~= t.revision then return CONFLICT end
    return nil
  end

  local function set_detail(t, r, field, value)
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

  -- What is kept of a settled task is written before its end is set.
  local function write_history(t, r, set)
    local clear = says(t, 'clear_error')
    if t.failure == '' and t.line == '' and not (clear and r.history) then return end
    local key = history_key(t.id)
    local packed = with_history(r.history and call('GET', key), clear, t.failure, t.line)
    if packed ~= '' then set(key, packed) elseif r.history then call('DEL', key) end
    r.history = packed ~= ''
  end

  -- A DONE task keeps what decides its future and what shows it: URL, key, kind, memo.
  local function shrink(t, r)
    r.body = string.sub(r.body, 1, r.core)
    if r.details then call('HDEL', details_key(t.id), 'c') end
    if r.history then call('DEL', history_key(t.id)) end
    r.history = false
  end

  local function note_source(uid, t)
    local s = get_source(uid)
    if not s.known then return end
    if says(t, 'success') then note_success(s.counts) end
    if says(t, 'failure') then note_failure(s.counts) end
    if t.filtered ~= '' then count_filtered(uid, t.filtered) end
  end

  local function end_of_lease(t, r, l)
    local left, locks, held, digests = leave_leased(l)
    local n = #locks
    left[#left + 1], held[r.holder] = suffix_of(t.id), (held[r.holder] or 0) + 1
    locks[n + 1], locks[n + 2], locks[n + 3] = lock_key(t.id), r.holder, r.digest
    digests[r.holder] = r.digest
    local q = get_queue(l.queue)
    local block = q.block
    lease_ended(q, t.kind, t.fetch, t.retry_after, r.deadline, t.asked > 0 and t.asked - 1 or nil)
    if q.block ~= block and t.failure ~= '' then
      call('SET', queue_cause_key(q.name), t.id .. '\n' .. t.failure, 'PXAT', decimal(q.block - 1))
    end
    r.last, r.result = r.digest, t.result
    end_lease(r)
    if t.result == R_EXPIRED or t.result == R_MAX_HOLD or t.result == R_REPLACED then tally('expired', 1)
    elseif t.result ~= R_GIVEN_BACK and t.result ~= R_REVOKED then tally('settled', 1) end
  end

  local function settle(t, r, l)
    r.state = t.state
    if says(t, 'shrink') then shrink(t, r) else write_history(t, r, set) end
    enter_settled(l, t.id, r, t.remember)
    outstanding(l.uid, r, -1)
  end

  local function apply(t, r)
    local l = get_lane(r.lane)
    if t.token == NO_DIGEST then leave_waiting(l, t.id) else end_of_lease(t, r, l) end
    r.revision, r.first_due, r.run = (r.revision + 1) % 4294967296, t.first_due, t.run
    r.cycle, r.attempt, r.counters = t.cycle, t.attempt, t.counters
    if says(t, 'settled') then r.settled_at = now end
    if says(t, 'clear_flags') then r.cancel, r.again = 0, false end
    if says(t, 'memo') then set_detail(t, r, 'm', t.memo) end
    if says(t, 'cursor') then set_detail(t, r, 'c', t.cursor) end
    note_source(l.uid, t)
    if t.state >= DONE then
      settle(t, r, l)
      return
    end
    r.state = WAITING
    r.due = says(t, 'due') and t.due or now + t.delay
    write_history(t, r, write)
    write(t.key, pack_record(r))
    enter_waiting(l, t.id, r)
  end

  -- Applies a transition to a record, and answers it.
  function answer(out, t, raw)
    local r, code = read_record(raw), NOT_FOUND
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
end

-- at each call
local packed, at, out, met = ARGV[1], 1, {}, {}
while at <= #packed do
  local transitions, names = {}, {}
  for i = 1, AT_ONCE do
    if at > #packed then break end
    transitions[i], at = read_transition(packed, at)
    names[i] = transitions[i].key
  end
  local records = call('MGET', unpack(names))
  local lane_numbers = {}
  for i = 1, #names do
    if is_whole(records[i]) then lane_numbers[#lane_numbers + 1] = record_lane(records[i]) end
  end
  gather(lane_numbers)
  for i, t in ipairs(transitions) do
    local raw = records[i]
    if met[t.id] then
      -- What an earlier transition changed is read again.
      flush_writes()
      raw = call('GET', t.key)
    end
    met[t.id] = true
    answer(out, t, raw)
  end
end
finish(true)
return out
