-- Plain successes of leased one-shot tasks, which need no policy: nearly all reports.
local APPLIED, ALREADY, LOST, NOT_FOUND, POLICY = 1, 3, 4, 5, 6
local LEASE, HEADER, DETAILS = record.LEASE, record.HEADER, record.DETAILS
local R_SUCCEEDED = 1

-- Of a success the end of its id, the digest of the lease, the fetch duration in ms, and
-- where in ARGV its holder is (apply.go). Of a slot how many successes it has, and its text
-- with a "-".
local SUCCESS, VALUES, BYTES, SLOT = 'c26c17I6I2', 4, 51, '>I2Bc0'
-- The number of a success, what its host asks for (ms + 1, 0 = not said), and where in ARGV
-- its memo is (0 = no memo).
local EXTRA = '>I2I4I2'

-- The ids of the successes, flat values of which SUCCESS has the format.
local function ids_of(values, slots)
  local ids, at, first = {}, 1, 1
  while at <= #slots do
    local n, slot
    n, slot, at = parse(SLOT, slots, at)
    for i = first, first + n - 1 do ids[i] = slot .. values[VALUES * i - 3] end
    first = first + n
  end
  return ids
end

local function read_extras(packed)
  local extras, at = {}, 1
  while at <= #packed do
    local i, asked, memo
    i, asked, memo, at = parse(EXTRA, packed, at)
    extras[i] = { asked = asked > 0 and asked - 1 or nil, memo = ARGV[memo] }
  end
  return extras
end

-- Answers for a task that stays as it is.
local function refuse(out, code, raw, digest)
  local r, n = record.read(raw), #out
  if not r then
    out[n + 1], out[n + 2], out[n + 3] = 0, 0, 0
    return NOT_FOUND
  end
  code = code or r.last == digest and ALREADY or LOST
  out[n + 1], out[n + 2] = code == ALREADY and r.result or 0, record.visible(r)
  out[n + 3] = r.state == record.WAITING and r.due or 0
  return code
end

-- Leaves of the details of a task the memo alone; says whether there is one.
local function keep_memo(id, has, memo, gone)
  local name = key.details(id)
  if has then
    if memo == '' then call('HDEL', name, 'c', 'e', 'm') else call('HDEL', name, 'c', 'e') end
  elseif memo and memo ~= '' then
    call('DEL', name)
  else
    return false
  end
  if memo and memo ~= '' then call('HSET', name, 'm', memo) end
  call('PEXPIREAT', name, gone)
  return true
end

-- What is read of a leased record: source, bytes of the core, where the queue's name is; and
-- from its cancel mark on that, bytes of the holder's name, flags, revision.
local LANE, AT_LANE = '>I4xxxxxxxxxxxxxxxxxxI2xxxxxxxxxxxxI2I2', LEASE + 8
local READ, AT_READ = '>BxI2xxBI4', 38
-- Attempts, counters and when it settled, of each task of the call; and the same behind the
-- result and the first cycle.
local settled_end, first_end

-- Settles a task that is leased under the digest; false if it needs the policy.
local function settle(id, name, raw, s, core, queue_name, digest, extra, locked)
  local cancel, holder_size, flags, revision = parse(READ, raw, AT_READ)
  if flags % 4 > 0 or cancel > 0 or s.deleted or s.remember <= 0 then return false end
  s.gone = s.gone or decimal(now + s.remember - 1)
  local details, last, holder = flags % 8 >= DETAILS, first_end, sub(raw, #raw - holder_size + 1)
  if details or extra then details = keep_memo(id, details, extra and extra.memo, s.gone) end
  if flags % 16 >= record.HISTORY then call('DEL', key.history(id)) end
  if flags % 32 >= record.ENDED then
    local cycle = parse('>I4', raw, #raw - holder_size - record.END + 2)
    last = pack('>BI4', R_SUCCEEDED, (cycle + 1) % 4294967296) .. settled_end
  end
  local n = #writes
  writes[n + 1] = name
  writes[n + 2] = pack('>BBBI4', 1, record.DONE, record.ENDED + (details and DETAILS or 0), (revision + 2) % 4294967296)
    .. sub(raw, LEASE + 8, LEASE + HEADER + core) .. last .. digest
  lease.leave(id, s.n, queue_name, holder, digest, false, locked)
  return true
end

-- Ends a lease as its queue sees it; packed is the value of a queue that has no other.
local function end_lease(name, at_queue, packed, fetch, extra)
  if packed and not extra and polite.end_lease(name, at_queue, packed, fetch) then return end
  if packed then queue.offer(name, packed) end
  local q = queue.get(name)
  gate.lease_ended(q, gate.SUCCEEDED, fetch, 0, 0, extra and extra.asked)
  q.touched = true
end

-- Settles leased tasks by plain success: the Unread transitions of dispatch.Leases.Apply.
--
-- ARGV     whether a task occurs twice (0, 1); the successes, packed one after the
--          other (SUCCESS); their slots, each with the number of its successes (SLOT); the
--          optional fields of successes (EXTRA); holders, "<collector>/<client token>", and
--          memos
-- Returns  the codes, a byte each; then flat, per success that is not settled: prior
--          result, state and due
-- Cost     O(log n) a success; queues are placed once; at most 100
-- acknowledged
function scripts.succeed()
  local n = #ARGV[2] / BYTES
  local said = { parse('>' .. string.rep(SUCCESS, n), ARGV[2]) }
  local ids, extras, names, out, codes = ids_of(said, ARGV[3]), read_extras(ARGV[4]), {}, { '' }, {}
  local task_prefix, lock_prefix, asked = key.task(''), key.lock(''), {}
  for i = 1, n do
    names[i] = task_prefix .. ids[i]
    asked[i], asked[n + i] = names[i], lock_prefix .. ids[i]
  end
  settled_end = '\0\0\0\0' .. record.NO_COUNTERS .. pack('>I6', now)
  first_end = pack('>BI4', R_SUCCEEDED, 1) .. settled_end
  local records, met = shard.read(asked), ARGV[1] == '1' and {} -- and their locks behind them
  -- Of each record that is leased under its digest: the source, false for none, the bytes of
  -- its core, and its queue. And where a queue stands among all of them, and those that occur
  -- again.
  local numbers, cores, queues, places, keys, again, queue_prefix = {}, {}, {}, {}, {}, {}, key.queue('')
  for i = 1, n do
    local raw = records[i]
    numbers[i] = false
    if raw and #raw >= LEASE + HEADER and sub(raw, 1, 17) == said[VALUES * i - 2] then
      local number, core, at, size = parse(LANE, raw, AT_LANE)
      at = LEASE + HEADER + at
      local name = sub(raw, at + 1, at + size)
      numbers[i], cores[i], queues[i] = number, core, name
      local place = places[name]
      if place then
        again[name] = place
      else
        place = #keys + 1
        places[name], keys[place] = place, queue_prefix .. name
      end
    end
  end
  local values, done, gone = source.read_all(numbers, keys), 0, {}
  for name, place in pairs(again) do
    if values[place] then queue.offer(name, values[place]) end
  end
  for i = 1, n do
    local raw, name, digest, number = records[i], names[i], said[VALUES * i - 2], numbers[i]
    if met and met[name] then -- what was settled just now is answered as it is now
      flush_writes()
      raw, number = call('GET', name), false
    end
    if not number then
      codes[i] = refuse(out, nil, raw, digest)
    else
      local s, extra, queue_name = source.get(number), extras[i], queues[i]
      if settle(ids[i], name, raw, s, cores[i], queue_name, digest, extra, records[n + i]) then
        local place = places[queue_name]
        source.succeeded(s)
        end_lease(queue_name, keys[place], not again[queue_name] and values[place], said[VALUES * i - 1], extra)
        codes[i], done = APPLIED, done + 1
        gone[2 * done - 1], gone[2 * done] = name, s.gone
        if met then met[name] = true end
      else
        codes[i] = refuse(out, POLICY, raw, digest)
      end
    end
  end
  shard.tally('done', done)
  shard.tally('settled', done)
  shard.tally('leased', -done)
  finish(true)
  -- Written together, and then ended one by one, records cost less than by SET with PXAT:
  -- Lua makes a table of each answer OK, but none of a number.
  for i = 1, #gone, 2 do call('PEXPIREAT', gone[i], gone[i + 1]) end
  out[1] = string.char(unpack(codes))
  return out
end
