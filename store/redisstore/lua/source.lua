-- Sources as the shard knows them, by their number there: the gate, what scripts need of a
-- source; and counts of its tasks. A source that the shard does not know (any more) is
-- deleted.

-- What each turn and report needs: deleted, held until, how long settled tasks are
-- remembered, bytes that are joined to each task, lease, hold, priority, pool. The rest, which
-- Go reads (internal/record): uid, id, version, limit.
local GATE, MORE, AT_MORE = '>BI6I6I4I4I4BBc0', '>Bc0I2c0I7I6', 28
-- Counts by state; one-shot tasks that wait or are leased, and those that were limited;
-- failures in a row, and when it last succeeded and failed; until when its lanes are listed
-- for claims that name it; lanes with dead or canceled tasks.
local COUNTS, AT_NAMED, AT_KEPT = '>i6i6i6i6i6i6i6i6i6i6i6i6i6', 67, 73

local sources, numbers, changed -- by number; numbers by uid; those whose counts changed

function source.begin() sources, numbers, changed = {}, {}, {} end

local function pack_gate(g)
  return pack(GATE, g.deleted, packed_until(g.held), g.remember, g.joined, g.lease, g.hold, g.priority, #g.pool, g.pool)
    .. pack(MORE, #g.uid, g.uid, #g.id, g.id, g.version, g.limit)
end

-- The rest of a gate is read when it is asked for, which most calls do not do.
local REST = { uid = '', id = '', version = 0, limit = 0 }
local LAZY = {
  __index = function(s, field)
    if REST[field] == nil then return nil end
    local rest = s.rest
    if not rest then
      rest = REST
      if s.gate then
        local uid, id, version, limit = parse(MORE, s.gate, AT_MORE + #s.pool)
        rest = { uid = uid, id = id, version = version, limit = limit }
      end
      s.rest = rest
    end
    return rest[field]
  end,
}

-- Makes a source of its gate and its counts, either false for none. taken and ended are
-- leases of this call that its counts do not have yet: granted, and ended by success. gone is
-- when its settled tasks are forgotten. (A table of 17 fields takes Lua twice as long as one
-- of 16.)
local function lay(n, packed, counted)
  local deleted, held, remember, joined, lease_, hold, priority, pool_name = 1, 0, 0, 0, 0, 0, 5, ''
  if packed then deleted, held, remember, joined, lease_, hold, priority, pool_name = parse(GATE, packed) end
  counted = packed and counted or false
  local s = setmetatable({
    n = n, gate = packed, deleted = deleted == 1, held = until_(held), remember = remember, joined = joined, lease = lease_, hold = hold,
    priority = priority, pool = pool_name, packed = counted, named = counted and parse('>i6', counted, AT_NAMED) or 0,
    taken = 0, ended = 0, counts = false, gone = false,
  }, LAZY)
  sources[n] = s
  return s
end

function source.get(n)
  local s = sources[n]
  if s then return s end
  local found = call('MGET', key.source(text_of(n)), key.counts(text_of(n)))
  return lay(n, found[1], found[2])
end

-- Reads the sources of a list that were not read yet, all at once, and with them other keys
-- of strings, if given, whose values are returned, the first of them at the first place.
function source.read_all(list, others)
  local last, new, keys = nil, {}, others or {}
  local k = #keys
  for i = 1, #list do
    local n = list[i]
    if n and n ~= last and sources[n] == nil then new[#new + 1], sources[n] = n, false end
    last = n
  end
  for i = 1, #new do
    local text = text_of(new[i])
    keys[k + 2 * i - 1], keys[k + 2 * i] = key.source(text), key.counts(text)
  end
  if not keys[1] then return {} end
  local found = call('MGET', unpack(keys))
  for i = 1, #new do lay(new[i], found[k + 2 * i - 1], found[k + 2 * i]) end
  return found
end

local function totals(s)
  local scheduled, ready, leased, done, dead, canceled, out, limited, row, success, failure, _, kept =
    parse(COUNTS, s.packed or ZEROS)
  local taken, ended = s.taken, s.ended
  if ended > 0 then row, success = 0, now end
  return scheduled, ready - taken, leased + taken - ended, done + ended, dead, canceled, out - ended, limited, row, success, failure,
    s.named, kept
end

-- What is counted of a source, to be changed.
function source.counts(s)
  local c = s.counts
  if c then return c end
  if s.taken + s.ended == 0 then changed[#changed + 1] = s end
  local scheduled, ready, leased, done, dead, canceled, out, limited, row, success, failure, _, kept = totals(s)
  c = {
    scheduled = scheduled, ready = ready, leased = leased, done = done, dead = dead, canceled = canceled, out = out,
    limited = limited, row = row, success = success, failure = failure, kept = kept,
  }
  s.counts, s.taken, s.ended = c, 0, 0
  return c
end

-- How many lanes of a source have dead or canceled tasks.
function source.kept(n)
  local s = source.get(n)
  if s.counts then return s.counts.kept end
  return s.packed and parse('>i6', s.packed, AT_KEPT) or 0
end

-- Counts a lease that is granted.
function source.took(s)
  local c = s.counts
  if c then
    c.ready, c.leased = c.ready - 1, c.leased + 1
    return
  end
  if s.taken + s.ended == 0 then changed[#changed + 1] = s end
  s.taken = s.taken + 1
end

-- Counts a lease of a one-shot task that ended by success.
function source.succeeded(s)
  local c = s.counts
  if c then
    c.done, c.leased, c.out, c.row, c.success = c.done + 1, c.leased - 1, c.out - 1, 0, now
    return
  end
  if s.taken + s.ended == 0 then changed[#changed + 1] = s end
  s.ended = s.ended + 1
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
    local s = changed[i]
    local c = s.counts
    if s.gate then
      if c then
        s.packed = pack(COUNTS, c.scheduled, c.ready, c.leased, c.done, c.dead, c.canceled, c.out, c.limited, c.row, c.success, c.failure,
          s.named, c.kept)
      else
        s.packed = pack(COUNTS, totals(s))
      end
      write(key.counts(text_of(s.n)), s.packed)
      s.counts, s.taken, s.ended = false, 0, 0
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

-- Whether a gate is as Go and the scripts read it.
function source.is_whole(packed)
  local ok, pool_size = pcall(parse, '>B', packed, AT_MORE - 1)
  if not ok then return false end
  local read, _, _, _, _, at = pcall(parse, MORE, packed, AT_MORE + pool_size)
  return read and at == #packed + 1
end

-- Writes the gate at position i of ARGV under a number: what was there was lost.
function source.restore(n, i)
  local g = read_gate(i)
  local packed = pack_gate(g)
  call('SET', key.source(n), packed)
  call('SET', key.uid(g.uid), n)
  local old = sources[n]
  local fresh = lay(n, packed, old and old.packed or call('GET', key.counts(n)))
  numbers[g.uid] = n
  return fresh
end

-- Bytes of packed counts.
source.COUNTS_SIZE = 78

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
  if s and s.gate and s.version >= version then return s, version end
  if not (s and s.gate) then
    repeat -- where the count was lost, numbers are in use that it has not reached
      shard.tally('sources', 1)
      n = text_of(shard.counts().sources)
    until call('EXISTS', key.source(n), key.counts(n), key.lanes(n)) == 0
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
  if old then fresh.counts, fresh.taken, fresh.ended = old.counts, old.taken, old.ended end
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
