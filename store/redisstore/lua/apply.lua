-- The ends of leases.
local APPLIED, CONFLICT, ALREADY, LOST, NOT_FOUND = 1, 2, 3, 4, 5
local EXPIRED, GIVEN_BACK, REVOKED, MAX_HOLD, REPLACED = 4, 5, 6, 7, 8 -- dispatch.Result
-- So many records are read at once.
local AT_ONCE = 25

-- The bits of a transition (apply.go).
local BITS = {
  expired = 1, settled = 2, shrink = 4, clear_again = 8, success = 16, failure = 32, clear_error = 64, due = 128,
  memo = 256, cursor = 512, behind = 1024,
}
local function says(t, what) return t.bits % (2 * BITS[what]) >= BITS[what] end

local TRANSITION = '>c17I4I2BBBI4I4c9I6I6I6I6I6I6I6I4c4Bc0I4c0I4c0I4c0I4c0Bc0'

local function read_transition(packed, from)
  local digest, revision, bits, result, state, kind, cycle, attempt, counters, run, due, first_due, delay, remember, fetch,
    retry_after, asked, url, id, memo, cursor, failure, line, filtered, to = parse(TRANSITION, packed, from)
  return {
    id = id, key = key.task(id), digest = digest, revision = revision, bits = bits, result = result, state = state,
    kind = kind, cycle = cycle, attempt = attempt, counters = counters, run = run, due = due, first_due = first_due,
    delay = delay, remember = remember, fetch = fetch, retry_after = retry_after, asked = asked, url = url, memo = memo,
    cursor = cursor, failure = failure, line = line, filtered = filtered,
  }, to
end

-- Why the transition does not apply; nil when it does.
local function refusal(t, r)
  if t.digest == record.NO_DIGEST then
    if r.state ~= record.WAITING then return LOST end
  elseif r.state ~= record.LEASED or r.digest ~= t.digest then
    return r.last == t.digest and ALREADY or LOST
  elseif says(t, 'expired') and r.deadline > now then
    return LOST
  end
  return r.revision ~= t.revision and CONFLICT or nil
end

local function set_detail(t, r, field, value)
  local name = key.details(t.id)
  if value == '' then
    if r.details then call('HDEL', name, field) end
    return
  end
  if not r.details then
    call('DEL', name)
    r.details = true
  end
  call('HSET', name, field, value)
end

local function write_history(t, r)
  local clear, name = says(t, 'clear_error'), key.history(t.id)
  if t.failure == '' and t.line == '' and not (clear and r.history) then return end
  local packed = task.with_history(r.history and call('GET', name), clear, t.failure, t.line)
  if packed ~= '' then call('SET', name, packed) elseif r.history then call('DEL', name) end
  r.history = packed ~= ''
end

-- A DONE task keeps what decides its future and what shows it: URL, key, kind, memo.
local function shrink(t, r)
  r.body = sub(r.body, 1, r.core)
  if r.details then call('HDEL', key.details(t.id), 'c') end
  if r.history then call('DEL', key.history(t.id)) end
  r.history = false
end

local function end_of_lease(t, r, s)
  local q = queue.get(r.queue)
  lease.leave(t.id, r.source, r.queue, r.holder, r.digest, false)
  source.count(s, 'leased', -1)
  local block = q.block
  gate.lease_ended(q, t.kind, t.fetch, t.retry_after, r.deadline, t.asked > 0 and t.asked - 1 or nil, t.url)
  q.touched = true
  if q.block ~= block and t.failure ~= '' then
    call('SET', key.cause(q.name), t.id .. '\n' .. t.failure, 'PXAT', decimal(q.block - 1))
  end
  r.last, r.result = r.digest, t.result
  record.end_lease(r)
  if t.result == EXPIRED or t.result == MAX_HOLD or t.result == REPLACED then shard.tally('expired', 1)
  elseif t.result ~= GIVEN_BACK and t.result ~= REVOKED then shard.tally('settled', 1) end
end

local function apply(t, r)
  local s = source.get(r.source)
  if t.digest == record.NO_DIGEST then task.leave(t.id, r) else end_of_lease(t, r, s) end
  r.revision, r.first_due, r.run = (r.revision + 1) % 4294967296, t.first_due, t.run
  r.cycle, r.attempt, r.counters, r.behind = t.cycle, t.attempt, t.counters, says(t, 'behind')
  if says(t, 'settled') then r.settled_at = now end
  if says(t, 'clear_again') then r.again = false end
  if says(t, 'memo') then set_detail(t, r, 'm', t.memo) end
  if says(t, 'cursor') then set_detail(t, r, 'c', t.cursor) end
  if s.gate then
    if says(t, 'success') then source.note_success(s) end
    if says(t, 'failure') then source.note_failure(s) end
    if t.filtered ~= '' then source.count_filtered(s, t.filtered) end
  end
  r.state = t.state
  if t.state >= record.DONE then
    if says(t, 'shrink') then shrink(t, r) else write_history(t, r) end
    task.settle(s, t.id, r, t.remember)
    return
  end
  r.state = record.WAITING
  r.due = says(t, 'due') and t.due or now + t.delay
  write_history(t, r)
  write(t.key, record.pack(r))
  task.enter(t.id, r)
end

-- Applies a transition to a record, and answers it.
local function answer(out, t, raw)
  local r, code = record.read(raw), NOT_FOUND
  if r then
    code = refusal(t, r)
    if not code then
      apply(t, r)
      code = APPLIED
    end
  end
  local n = #out
  out[n + 1], out[n + 2] = code, code == ALREADY and r.result or 0
  out[n + 3], out[n + 4] = r and record.visible(r) or 0, r and r.state == record.WAITING and r.due or 0
end

-- Applies transitions of leased or waiting tasks (dispatch.Leases.Apply).
--
-- ARGV     all transitions, packed one after the other (apply.go)
-- Returns  flat, for each transition: code, prior result, state, due
-- Cost     O(log n) a transition; lanes and queues are placed once; at most 100
-- acknowledged
function scripts.apply()
  local packed, at, out, met = ARGV[1], 1, {}, {}
  while at <= #packed do
    local transitions, names, numbers, queues = {}, {}, {}, {}
    for i = 1, AT_ONCE do
      if at > #packed then break end
      transitions[i], at = read_transition(packed, at)
      names[i] = transitions[i].key
    end
    local records = call('MGET', unpack(names))
    for _, raw in ipairs(records) do
      if record.is_whole(raw) then
        numbers[#numbers + 1], queues[#queues + 1] = record.lane(raw, record.is_leased(raw) and record.LEASE or 0)
      end
    end
    source.read_all(numbers)
    queue.read_all(queues)
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
end
