-- Settles leased tasks by plain success: the Unread transitions of
-- dispatch.Leases.Apply.
--
-- KEYS[1]  the shard key
-- ARGV     whether a task occurs twice (0, 1); the successes, packed one after the
--          other (SUCCESS, below); their slots, each with its "-" and the number of
--          its successes (SLOT); the optional fields of successes (EXTRA); holders,
--          "<collector>/<client token>", and memos
-- Returns  the codes, a byte each; then flat, per success that is not settled: prior
--          result, state and due
-- Cost     O(log n) a success; lanes and queues are touched once; at most 100
--
-- uses: gather note settled
local APPLIED, ALREADY, LOST, NOT_FOUND, POLICY = 1, 3, 4, 5, 6

-- Of the call: the values of all successes, flat, so many of each; by their numbers the
-- keys of their tasks and locks, and what they say besides; and of leases that end the
-- locks, how many each holder held, and a digest of each.
local VALUES = 4
local values, task_keys, lock_keys, extras, locks, held, digests

local read_call
do
  -- Of a success the end of its id, the digest of the lease, the fetch duration in ms,
  -- and where in ARGV its holder is (apply.go).
  local SUCCESS, BYTES = 'c26c17I6I2', 51
  local formats = {} -- of so many successes
  local SLOT = '>I2Bc0'
  -- The number of a success, what its host asks for (ms + 1, 0 = not said), and where
  -- in ARGV its memo is (0 = no memo).
  local EXTRA = '>I2I4I2'

  local function name_keys(slots)
    local at, first = 1, 1
    while at <= #slots do
      local n, slot
      n, slot, at = struct.unpack(SLOT, slots, at)
      local task, lock = task_key(slot), lock_key(slot)
      for i = first, first + n - 1 do
        local suffix = values[VALUES * i - 3]
        task_keys[i], lock_keys[i] = task .. suffix, lock .. suffix
      end
      first = first + n
    end
  end

  local function read_extras(packed)
    local at = 1
    while at <= #packed do
      local i, asked, memo
      i, asked, memo, at = struct.unpack(EXTRA, packed, at)
      extras[i] = { asked = asked > 0 and asked - 1, memo = ARGV[memo] }
    end
  end

  function read_call(successes, slots, more)
    local n = #successes / BYTES
    formats[n] = formats[n] or '>' .. string.rep(SUCCESS, n)
    values, task_keys, lock_keys, extras = { struct.unpack(formats[n], successes) }, {}, {}, {}
    name_keys(slots)
    read_extras(more)
  end
end

local out -- the answer

-- Answers for a record that stays as it is.
local function refuse(code, raw)
  local r, n = read_record(raw), #out
  out[n + 1], out[n + 2] = code == ALREADY and r.result or 0, visible_state(r)
  out[n + 3] = r.state == WAITING and r.due or 0
  return code
end

-- Answers for a task that is not leased under the digest.
local function not_held(raw, digest)
  if not is_whole(raw) then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = 0, 0, 0
    return NOT_FOUND
  end
  local at = is_leased(raw) and LEASE + AT.last or AT.last
  return refuse(string.sub(raw, at, at + DIGEST - 1) == digest and ALREADY or LOST, raw)
end

-- Leaves of the details of the i-th task, if it has any, the memo alone; says whether
-- there is one.
local function keep_memo(i, g, memo)
  local key = details_key(id_of(g.lane, values[VALUES * i - 3]))
  if g.kind.details then
    if memo == '' then call('HDEL', key, 'c', 'e', 'm') else call('HDEL', key, 'c', 'e') end
  elseif memo and memo ~= '' then
    call('DEL', key)
  else
    return false
  end
  if memo and memo ~= '' then call('HSET', key, 'm', memo) end
  call('PEXPIREAT', key, g.gone)
  return true
end

local settle
do
  local AT_CORE, AT_REST = LEASE + AT.core, LEASE + AT.last + DIGEST

  -- Ends a lease as the queue sees it. What its host asks for counts from there on.
  local function end_lease_of(g, fetch, asked)
    if asked then
      tell_all()
      lease_ended(g.queue, SUCCEEDED, fetch, 0, 0, asked)
      return
    end
    g.n = g.n + 1
    if fetch < g.shortest then g.shortest = fetch end
    if fetch > g.longest then g.longest = fetch end
  end

  -- Begins to end leases of a group's lane.
  local function begin_left(g)
    g.left, locks, held, digests = leave_leased(g.lane)
    return g.left
  end

  -- Settles the i-th task, which is leased under its digest, given its group.
  function settle(i, raw, g)
    if not g.plain then return refuse(POLICY, raw) end
    local at, kind, extra = VALUES * i - 3, g.kind, extras[i]
    local begin = kind.begin
    if kind.details or extra then
      if keep_memo(i, g, extra and extra.memo) then begin = kind.detailed end
    end
    if kind.history then call('DEL', history_key(id_of(g.lane, values[at]))) end
    local high, low = string.byte(raw, AT_CORE, AT_CORE + 1)
    local n = #writes
    writes[n + 1] = task_keys[i]
    writes[n + 2] = begin .. g.tail .. values[at + 1] .. string.sub(raw, AT_REST, LEASE + HEADER + high * 256 + low)
    local left, holder = g.left or begin_left(g), ARGV[values[at + 3]]
    n = #locks
    left[#left + 1], held[holder] = values[at], (held[holder] or 0) + 1
    locks[n + 1], locks[n + 2], locks[n + 3] = lock_keys[i], holder, values[at + 1]
    digests[holder] = values[at + 1]
    end_lease_of(g, values[at + 2], extra and extra.asked)
    return APPLIED
  end
end

-- Counts what was settled, and tells queues of it.
local function count_settled()
  tell_all()
  local all = 0
  for i = 1, ended and #ended or 0 do
    local l = ended[i]
    local n, c = #l.left, get_source(l.uid).counts
    c.done, c.out, all = c.done + n, c.out - n, all + n
    note_success(c)
  end
  tally('done', all)
  tally('settled', all)
end

-- at each call
out = { '' }
read_shard()
read_call(ARGV[2], ARGV[3], ARGV[4])
local records, codes, met = call('MGET', unpack(task_keys)), {}, ARGV[1] == '1' and {}
local of = group_leased(records, values, 2, VALUES)
for i = 1, #task_keys do
  local raw, g, key = records[i], of[i], task_keys[i]
  if met and met[key] then -- what was settled just now is answered as it is now
    flush_writes()
    raw, g = call('GET', key), false
  end
  codes[i] = g and settle(i, raw, g) or not_held(raw, values[VALUES * i - 2])
  if met then met[key] = met[key] or codes[i] == APPLIED end
end
count_settled()
finish(true)
-- Written together, and then ended one by one, records cost less than by SET with PXAT:
-- Lua makes a table of each answer OK, but none of a number.
for i = 1, #codes do
  if codes[i] == APPLIED then call('PEXPIREAT', task_keys[i], of[i].gone) end
end
out[1] = string.char(unpack(codes))
return out
