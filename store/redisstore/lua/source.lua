-- Sources as the shard knows them, by their number there: the gate, what scripts need of a
-- source; and counts of its tasks. A source that the shard does not know (any more) is
-- deleted.

-- Uid, id, version, pool, priority, held until, deleted, limit, lease, hold, bytes that are
-- joined to each task, how long settled tasks are remembered.
local GATE = '>Bc0I2c0dI2c0BdBddddd'
-- Counts by state; one-shot tasks that wait or are leased, and those that were limited;
-- failures in a row, and when it last succeeded and failed; until when its lanes are listed
-- for claims that name it; lanes with dead or canceled tasks.
local COUNTS, AT_NAMED = '>i6i6i6i6i6i6i6i6i6i6i6i6i6', 67

local sources, numbers, changed -- by number; numbers by uid; those whose counts changed

function source.begin() sources, numbers, changed = {}, {}, {} end

local function pack_gate(g)
  return pack(GATE, #g.uid, g.uid, #g.id, g.id, g.version, #g.pool, g.pool, g.priority, g.held, g.deleted, g.limit, g.lease, g.hold,
    g.joined, g.remember)
end

-- Makes a source of its gate and its counts, either false for none.
local function lay(n, packed, counted)
  local s = {
    n = n, known = false, uid = '', id = '', version = 0, pool = '', priority = 5, held = 0, deleted = true, limit = 0, lease = 0,
    hold = 0, joined = 0, remember = 0, packed = packed and counted or false, counts = false, named = 0, list = false, terms = false,
  }
  if s.packed then s.named = parse('>i6', counted, AT_NAMED) end
  if packed then
    local held, deleted
    s.uid, s.id, s.version, s.pool, s.priority, held, deleted, s.limit, s.lease, s.hold, s.joined, s.remember = parse(GATE, packed)
    s.known, s.held, s.deleted = true, until_(held), deleted == 1
  end
  sources[n] = s
  return s
end

function source.get(n)
  if sources[n] then return sources[n] end
  local found = call('MGET', key.source(n), key.counts(n))
  return lay(n, found[1], found[2])
end

-- Reads the sources of a list that were not read yet, all at once, and with them other keys
-- of strings, if given, whose values are returned, the first of them at the first place.
function source.read_all(list, others)
  local new, keys, met = {}, others or {}, {}
  local n_others = #keys
  for i = 1, #list do
    local n = list[i]
    if not sources[n] and not met[n] then
      met[n] = true
      local k = #keys
      new[#new + 1], keys[k + 1], keys[k + 2] = n, key.source(n), key.counts(n)
    end
  end
  if not keys[1] then return {} end
  local found = call('MGET', unpack(keys))
  for i = 1, #new do lay(new[i], found[n_others + 2 * i - 1], found[n_others + 2 * i]) end
  return found
end

-- What is counted of a source, to be changed.
function source.counts(s)
  local c = s.counts
  if c then return c end
  local scheduled, ready, leased, done, dead, canceled, out, limited, row, success, failure, _, kept =
    parse(COUNTS, s.packed or ZEROS)
  c = {
    scheduled = scheduled, ready = ready, leased = leased, done = done, dead = dead, canceled = canceled, out = out,
    limited = limited, row = row, success = success, failure = failure, kept = kept,
  }
  s.counts, changed[#changed + 1] = c, s
  return c
end

-- Counts what is kept of a source alone, and what is kept of the shard, too.
function source.tally(s, field, n)
  if n ~= 0 then
    local c = source.counts(s)
    c[field] = c[field] + n
  end
end
function source.count(s, field, n)
  source.tally(s, field, n)
  shard.tally(field, n)
end

-- One-shot tasks that wait or are leased, which a source's limit counts.
function source.outstanding(s, r, n)
  if not r.recurring then source.tally(s, 'out', n) end
end

function source.note_success(s)
  local c = source.counts(s)
  c.row, c.success = 0, now
end
function source.note_failure(s)
  local c = source.counts(s)
  c.row, c.failure = c.row + 1, now
end

-- Writes what was counted of sources. One that was forgotten keeps no counts.
function source.save()
  for i = 1, #changed do
    local s, c = changed[i], changed[i].counts
    if s.known then
      s.packed = pack(COUNTS, c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.out, c.limited, c.row, c.success, c.failure,
        s.named, c.kept)
      s.counts = false
      write(key.counts(s.n), s.packed)
    end
  end
  changed = {}
end

-- The number of a source, nil if the shard does not know it.
function source.number(uid)
  if numbers[uid] == nil then numbers[uid] = tonumber(call('GET', key.uid(uid)) or nil) or false end
  return numbers[uid] or nil
end

source.GATE_ARGS = 12 -- uid, id, version, and so on

local function read_gate(i)
  return {
    uid = ARGV[i], id = ARGV[i + 1], version = tonumber(ARGV[i + 2]), pool = ARGV[i + 3],
    priority = tonumber(ARGV[i + 4]), held = tonumber(ARGV[i + 5]), deleted = tonumber(ARGV[i + 6]),
    limit = tonumber(ARGV[i + 7]), lease = tonumber(ARGV[i + 8]), hold = tonumber(ARGV[i + 9]),
    joined = tonumber(ARGV[i + 10]), remember = tonumber(ARGV[i + 11]),
  }
end

local function has_tasks(s)
  local c = source.counts(s)
  return c.ready > 0 or c.leased > 0 or c.done > 0
end

-- Gives the source of the gate at position i of ARGV, after taking the gate when it is
-- newer than what is held, which it seldom is; and the version of the gate.
function source.take_gate(i)
  local uid, version = ARGV[i], tonumber(ARGV[i + 2])
  local n = source.number(uid)
  local s = n and source.get(n)
  if s and s.known and s.version >= version then return s, version end
  if not (s and s.known) then
    shard.tally('sources', 1)
    n = shard.counts().sources
    numbers[uid] = n
    call('SET', key.uid(uid), n)
  end
  local g = read_gate(i)
  local packed = pack_gate(g)
  call('SET', key.source(n), packed)
  -- A deleted source without lanes is remembered for a day (dispatch.CanceledMemory), so
  -- that what comes late for it is refused; longer if leased or done tasks may name it.
  if g.deleted == 1 and call('EXISTS', key.lanes(n)) == 0 then
    source.forget_in(s or lay(n, packed, false), s and has_tasks(s) and settled.MAX_REMEMBER or DAY)
  end
  local old = sources[n]
  local fresh = lay(n, packed, old and old.packed)
  fresh.counts = old and old.counts or false
  for k = 1, #changed do
    if changed[k] == old then changed[k] = fresh end
  end
  return fresh, version
end

-- Forgets a deleted source after so many ms: settled tasks may name it until then.
function source.forget_in(s, ms)
  call('PEXPIRE', key.source(s.n), ms)
  call('PEXPIRE', key.uid(s.uid), ms)
  call('PEXPIRE', key.drop(s.n), ms)
  call('ZADD', key.forget, now + ms + 1, key.source(s.n)) -- then its counts and fields of hashes go, too
end

-- Forgets what is kept of a source whose gate is gone.
function source.forget_fields(n)
  if call('EXISTS', key.source(n)) == 1 then return end
  delete(key.counts(n))
  for _, hash in ipairs({ key.filtered, key.named }) do call('HDEL', hash, n) end
end
