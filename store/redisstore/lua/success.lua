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

-- What is read of a leased record, from its cancel mark on: that, bytes of the holder's
-- name; flags, revision, source, bytes of the core, where the queue's name is.
local READ, FROM = '>BxI2xxBI4I4xxxxxxxxxxxxxxxxxxI2xxxxxxxxxxxxI2I2', 38
local settled_end -- attempts, counters and when it settled, of each task of the call

-- Settles a task that is leased under the digest, given what was read of it; false if it
-- needs the policy. locked is what its lock was read as; s.gone is when it is forgotten.
local function settle(id, name, raw, s, queue_name, digest, extra, r, locked)
  local cancel, holder_size, flags, revision, core = r[1], r[2], r[3], r[4], r[6]
  if flags % 4 > 0 or cancel > 0 or s.deleted or s.remember <= 0 then return false end
  s.gone = s.gone or decimal(now + s.remember - 1)
  local details, cycle, holder = flags % 8 >= DETAILS, 0, sub(raw, #raw - holder_size + 1)
  if details or extra then details = keep_memo(id, details, extra and extra.memo, s.gone) end
  if flags % 16 >= record.HISTORY then call('DEL', key.history(id)) end
  if flags % 32 >= record.ENDED then cycle = parse('>I4', raw, #raw - holder_size - record.END + 2) end
  local n = #writes
  writes[n + 1] = name
  writes[n + 2] = pack('>BBBI4', 1, record.DONE, record.ENDED + (details and DETAILS or 0), (revision + 2) % 4294967296)
    .. sub(raw, LEASE + 8, LEASE + HEADER + core) .. pack('>BI4', R_SUCCEEDED, (cycle + 1) % 4294967296) .. settled_end .. digest
  lease.leave(id, s.n, queue_name, holder, digest, false, locked)
  return true
end


-- Ends a lease as its queue sees it; packed is the value of a queue that has no other.
local function end_lease(name, packed, fetch, extra)
  if packed and not extra and polite.end_lease(name, packed, fetch) then return end
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
function scripts.succeed()
  local n = #ARGV[2] / BYTES
  local said = { parse('>' .. string.rep(SUCCESS, n), ARGV[2]) }
  local ids, extras, names, out, codes = ids_of(said, ARGV[3]), read_extras(ARGV[4]), {}, { '' }, {}
  for i = 1, n do names[i] = key.task(ids[i]) end
  local keys = { unpack(names) }
  for i = 1, n do keys[n + i] = key.lock(ids[i]) end
  settled_end = '\0\0\0\0' .. record.NO_COUNTERS .. pack('>I6', now)
  local records, met, some_numbers, some_queues = shard.read(keys), ARGV[1] == '1' and {}, {}, {}
  local times, reads, queues, done = {}, {}, {}, {} -- how often a queue occurs; of each record that is leased under its digest
  for i = 1, n do
    local raw, r = records[i], false
    if raw and #raw >= LEASE + HEADER and sub(raw, 1, 17) == said[VALUES * i - 2] then
      r = { parse(READ, raw, FROM) }
      local at = LEASE + HEADER + r[7]
      local name = sub(raw, at + 1, at + r[8])
      queues[i], some_numbers[#some_numbers + 1] = name, r[5]
      if times[name] then
        times[name] = times[name] + 1
      else
        times[name], some_queues[#some_queues + 1] = 1, name
      end
    end
    reads[i] = r
  end
  -- With the sources the values of queues; one that has several leases in the call is laid out.
  local values, read = {}, {}
  for i = 1, #some_queues do read[i] = key.queue(some_queues[i]) end
  local found = source.read_all(some_numbers, read)
  for i, name in ipairs(some_queues) do
    if times[name] == 1 then values[name] = found[i]
    elseif found[i] then queue.offer(name, found[i]) end
  end
  for i = 1, n do
    local raw, name, digest, r = records[i], names[i], said[VALUES * i - 2], reads[i]
    if met and met[name] then -- what was settled just now is answered as it is now
      flush_writes()
      raw, r = call('GET', name), false
    end
    if not r then
      codes[i] = refuse(out, nil, raw, digest)
    else
      local s, extra = source.get(r[5]), extras[i]
      if settle(ids[i], name, raw, s, queues[i], digest, extra, r, records[n + i]) then
        local c = source.counts(s)
        c.done, c.leased, c.out, c.row, c.success = c.done + 1, c.leased - 1, c.out - 1, 0, now
        end_lease(queues[i], values[queues[i]], said[VALUES * i - 1], extra)
        codes[i], done[#done + 1] = APPLIED, i
        if met then met[name] = true end
      else
        codes[i] = refuse(out, POLICY, raw, digest)
      end
    end
  end
  shard.tally('done', #done)
  shard.tally('settled', #done)
  shard.tally('leased', -#done)
  finish(true)
  -- Written together, and then ended one by one, records cost less than by SET with PXAT:
  -- Lua makes a table of each answer OK, but none of a number.
  for k = 1, #done do call('PEXPIREAT', names[done[k]], source.get(reads[done[k]][5]).gone) end
  out[1] = string.char(unpack(codes))
  return out
end
