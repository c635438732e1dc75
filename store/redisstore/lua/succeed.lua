-- Settles leased tasks whose success needs no policy (dispatch.Leases.Succeed).
--
-- KEYS[1]  the shard key
-- ARGV     the successes, packed one after the other (succeed.go): digest of the
--          lease, fetch duration in ms, what the host asks for (ms + 1, 0 = not
--          said), and where in ARGV its holder, "<collector>/<client token>", and its
--          memo are (0 = no memo); whether a task is there twice (0, 1); of each the
--          key of its task; of each that of its lock; holders and memos
-- Returns  the codes, a byte each, and of those that are not settled prior result,
--          state and due, flat
-- Cost     O(log n) a success; lanes and queues are touched once; at most 100
--
-- uses: gather note settled
local APPLIED, ALREADY, LOST, NOT_FOUND, POLICY = 1, 3, 4, 5, 6
local SUCCESS, SUCCESS_BYTES = '>c17I6I4I2I2', 31

-- By number as it is packed, the lanes of which something was settled here: what
-- their tasks share, and how many they are.
local settled

-- By queue, how many leases ended of which it was not told yet, and their shortest and
-- longest fetch.
local untold

local function untold_of(q)
  local u = untold[q]
  if not u then
    u = { n = 0, shortest = INF, longest = 0 }
    untold[q] = u
  end
  return u
end

local function lane_of(packed)
  local e = settled[packed]
  if not e then
    local l = get_lane(struct.unpack('>I4', packed))
    local s, q = get_source(l.uid), get_queue(l.queue)
    e = {
      l = l, s = s, q = q, untold = untold_of(q), n = 0, plain = not s.deleted and s.remember > 0, gone = decimal(now + s.remember - 1),
    }
    settled[packed] = e
  end
  return e
end

-- Tells a queue of its leases that ended so far.
local function tell(q, u)
  if u.n == 0 then return end
  lease_ended(q, SUCCEEDED, u.shortest, 0, 0, nil, u.n, u.longest)
  u.n, u.shortest, u.longest = 0, INF, 0
end

-- Keys of what was settled and when they are forgotten, flat. Written together, and
-- then ended one by one, they cost less than by SET with PXAT: Lua makes a table of
-- each answer OK, but none of a number.
local ends

-- The answer: codes, and what is told of the tasks that were not settled.
local codes, out

-- Answers for a record that stays as it is.
local function refuse(code, raw)
  local r, n = read_record(raw), #out
  out[n + 1], out[n + 2] = code == ALREADY and r.result or 0, visible_state(r)
  out[n + 3] = r.state == WAITING and r.due or 0
  return code
end

local function not_found()
  local n = #out
  out[n + 1], out[n + 2], out[n + 3] = 0, 0, 0
  return NOT_FOUND
end

-- Leaves of the details the memo alone; says whether there is any.
local function keep_memo(id, memo, has, gone)
  local key = details_key(id)
  if has then
    if memo == '' then call('HDEL', key, 'c', 'e', 'm') else call('HDEL', key, 'c', 'e') end
  elseif memo and memo ~= '' then
    call('DEL', key)
  else
    return false
  end
  if memo and memo ~= '' then call('HSET', key, 'm', memo) end
  call('PEXPIREAT', key, gone)
  return true
end

local settle
do
  local AT_CORE, AT_REST = LEASE + AT.core, LEASE + AT.last + DIGEST

  -- Why a task is not settled under the digest.
  local function lost(raw, digest)
    local at = is_leased(raw) and LEASE + AT.last or AT.last
    return refuse(string.sub(raw, at, at + DIGEST - 1) == digest and ALREADY or LOST, raw)
  end

  -- Ends a lease as the queue sees it. What its host asks for counts from there on.
  local function end_lease_of(e, fetch, asked)
    local u = e.untold
    e.n = e.n + 1
    if asked > 0 then
      tell(e.q, u)
      lease_ended(e.q, SUCCEEDED, fetch, 0, 0, asked - 1)
      return
    end
    u.n = u.n + 1
    if fetch < u.shortest then u.shortest = fetch end
    if fetch > u.longest then u.longest = fetch end
  end

  function settle(key, lock, raw, lane, digest, fetch, asked, holder, memo)
    if string.find(raw, digest, 1, true) ~= 1 then return lost(raw, digest) end
    local b, e = begin_of(raw), lane_of(lane)
    if not b.plain or not e.plain then return refuse(POLICY, raw) end
    local suffix = suffix_of(key)
    local detailed = (b.details or memo > 0) and keep_memo(id_of(e.l, suffix), ARGV[memo], b.details, e.gone)
    if b.history then call('DEL', history_key(id_of(e.l, suffix))) end
    local high, low = string.byte(raw, AT_CORE, AT_CORE + 1)
    local rest = string.sub(raw, AT_REST, LEASE + HEADER + high * 256 + low)
    local n = #writes
    writes[n + 1], writes[n + 2] = key, settled_begin(b, detailed) .. digest .. rest
    n = #ends
    ends[n + 1], ends[n + 2] = key, e.gone
    leave_leased(e.l, suffix, lock, ARGV[holder])
    end_lease_of(e, fetch, asked)
    return APPLIED
  end
end

-- What was settled just now is answered as it is now.
local function read_again(key)
  flush_writes()
  local raw = call('GET', key)
  return raw, gather({ raw })[1]
end

local function count_settled()
  for q, u in pairs(untold) do tell(q, u) end
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
settled, untold, ends, codes, out = {}, {}, {}, {}, { '' }
read_shard('done', 'leased', 'settled')
local packed, twice, met = ARGV[1], ARGV[2] == '1', {}
local n = #packed / SUCCESS_BYTES
local records = call('MGET', unpack(ARGV, 3, n + 2))
local lane_numbers = gather(records)
for i = 1, n do
  local key, raw, lane = ARGV[i + 2], records[i], lane_numbers[i]
  if twice then
    if met[key] then raw, lane = read_again(key) end
    met[key] = true
  end
  codes[i] = lane and settle(key, ARGV[i + 2 + n], raw, lane, struct.unpack(SUCCESS, packed, (i - 1) * SUCCESS_BYTES + 1)) or not_found()
end
count_settled()
flush_notes()
finish(true)
for i = 1, #ends, 2 do call('PEXPIREAT', ends[i], ends[i + 1]) end
out[1] = string.char(unpack(codes))
return out
