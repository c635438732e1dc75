-- Settles leased tasks whose success needs no policy (dispatch.Leases.Succeed).
--
-- KEYS[1]  the shard key
-- ARGV     the collectors; and at the end all successes, packed one after the
--          other (succeed.go): digest of the lease, fetch duration in ms, what the
--          host asks for (ms + 1, 0 = not said), number of the collector, id,
--          whether there is a memo, and that
-- Returns  per success: 1 when it is settled, else code, prior result, state, due
-- Cost     O(log n) a success; lanes and queues are touched once; at most 100
--
-- uses: gather note
local APPLIED, ALREADY, LOST, NOT_FOUND, POLICY = 1, 3, 4, 5, 6
local R_SUCCEEDED = 1
local SUCCESS = '>c16I6I4I2Bc0BI2c0'

-- What a settled record is made of: what stays of the header, and the core of the
-- body. The rest of its header is zero.
local LEASED_HEAD = '>BBBBBBI4c2I4I2c3I4'
local settled_record
do
  local HEAD = '>BBBBBBI4c2I4I2c3I4c13c24I6c16c38'
  local NO_ATTEMPTS = '\0\0\0\0\0\0\0\0\0\0\0\0\0'
  local NO_LEASE = NO_DIGEST .. NO_DIGEST .. '\0\0\0\0\0\0'
  local AT_TIMES, AFTER_TIMES = 39, 62 -- run, due, first due, created
  function settled_record(raw, digest, flags, version, priority, lane, depth, revision, core, size, cycle)
    return struct.pack(HEAD, version, DONE, flags, priority, R_SUCCEEDED, 0, lane, depth, (revision + 1) % 4294967296,
      core, size, (cycle + 1) % 4294967296, NO_ATTEMPTS, string.sub(raw, AT_TIMES, AFTER_TIMES), now, digest, NO_LEASE)
      .. string.sub(raw, HEADER + 1, HEADER + core)
  end
end

-- By number, the lanes of which something was settled here: what their tasks
-- share, and how many they are.
local settled

local function lane_of(number)
  local e = settled[number]
  if not e then
    local l = get_lane(number)
    local s = get_source(l.uid)
    e = { l = l, s = s, q = get_queue(l.queue), n = 0, plain = not s.deleted and s.remember > 0, gone = decimal(now + s.remember - 1) }
    settled[number] = e
  end
  return e
end

-- Answers for a record that stays as it is.
local function refuse(code, raw)
  local r = read_record(raw)
  return { code, code == ALREADY and r.result or 0, visible_state(r), r.state == WAITING and r.due or 0 }
end

-- Leaves of the details the memo alone; says whether there are any.
local function keep_memo(id, memo, has, gone)
  local key = details_key(id)
  if has then
    if memo == '' then call('HDEL', key, 'c', 'e', 'm') else call('HDEL', key, 'c', 'e') end
  elseif memo and memo ~= '' then
    call('DEL', key)
  else
    return 0
  end
  if memo and memo ~= '' then call('HSET', key, 'm', memo) end
  call('PEXPIREAT', key, gone)
  return DETAILS
end

local function settle(key, raw, id, digest, fetch, asked, collector, memo)
  if string.sub(raw, AT.lease, AT.lease + 15) ~= digest then
    return refuse(string.sub(raw, AT.last, AT.last + 15) == digest and ALREADY or LOST, raw)
  end
  local version, _, flags, priority, _, cancel, lane, depth, revision, core, size, cycle = struct.unpack(LEASED_HEAD, raw)
  local e, kept = lane_of(lane), 0
  if flags % 4 > 0 or cancel > 0 or not e.plain then return refuse(POLICY, raw) end
  if flags % 8 >= DETAILS or memo then kept = keep_memo(id, memo, flags % 8 >= DETAILS, e.gone) end
  if flags % 16 >= HISTORY then call('DEL', history_key(id)) end
  call('SET', key, settled_record(raw, digest, kept, version, priority, lane, depth, revision, core, size, cycle), 'PXAT', e.gone)
  leave_leased(e.l, id, collector)
  lease_ended(e.q, SUCCEEDED, fetch, 0, 0, asked)
  e.n = e.n + 1
  return APPLIED
end

local function count_settled()
  for _, e in pairs(settled) do
    if e.n > 0 then
      count(e.l.uid, 'done', e.n)
      tally_source(e.l.uid, 'out', -e.n)
      tally('settled', e.n)
      note_success(e.s)
    end
  end
end

-- at each call
settled = {}
read_shard('done', 'leased', 'settled')
local packed, at, n = ARGV[#ARGV], 1, 0
local names, ids, digests, fetches, asks, collectors, given, memos = {}, {}, {}, {}, {}, {}, {}, {}
while at <= #packed do
  n = n + 1
  digests[n], fetches[n], asks[n], collectors[n], ids[n], given[n], memos[n], at = struct.unpack(SUCCESS, packed, at)
  names[n] = task_key(ids[n])
end
local records, met, out = call('MGET', unpack(names)), {}, {}
gather(records)
for i = 1, n do
  -- What was settled just now is answered as it is now.
  local id, raw = ids[i], records[i]
  if met[id] then raw = call('GET', names[i]) end
  met[id] = true
  if raw and #raw >= HEADER then
    out[i] = settle(names[i], raw, id, digests[i], fetches[i], asks[i] > 0 and asks[i] - 1 or nil,
      ARGV[collectors[i]], given[i] == 1 and memos[i] or nil)
  else
    out[i] = { NOT_FOUND, 0, 0, 0 }
  end
end
count_settled()
flush_notes()
finish(true)
return out
