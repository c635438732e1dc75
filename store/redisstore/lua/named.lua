-- The lanes of a source that claims name ("source open" and "source wait" in
-- dispatch/scheduling.md), so that such a claim finds the next without a look at the others.
-- Of other sources, which is nearly all, nothing of this is kept. Members are queues.

-- So long its lanes are listed after a claim has named it.
local MEMORY = DAY
-- So many lanes of a queue come back as soon as it is placed sooner; a further one is
-- looked at again after a second.
local MOST_ASIDE, LOOK_AGAIN = 100, 1000
local NAMED = '>BI8B'

-- Of a source: whether all its lanes are listed, the cursor of the scan that lists them, and
-- how many turns its lanes were first for.
function named.of(s)
  local v = s.list
  if v then return v end
  v = { all = 0, cursor = 0, turns = 0, dirty = false }
  local packed = s.named > 0 and call('HGET', key.named, s.n)
  if packed then v.all, v.cursor, v.turns = parse(NAMED, packed) end
  s.list = v
  return v
end

-- Notes that a claim names the source.
function named.begin(s)
  if s.named < now + MEMORY / 2 then
    source.counts(s)
    if s.named <= now then
      call('UNLINK', key.source_open(s.n), key.source_wait(s.n))
      call('HDEL', key.named, s.n)
      s.list = false
    end
    s.named = now + MEMORY
  end
  return named.of(s)
end

function named.save(s)
  local v = s.list
  if v and v.dirty then
    call('HSET', key.named, s.n, pack(NAMED, v.all, v.cursor, v.turns % 8))
    v.dirty = false
  end
end

local function forget(s)
  source.counts(s)
  s.named, s.list = 0, false
  call('HDEL', key.named, s.n)
  call('UNLINK', key.source_open(s.n), key.source_wait(s.n))
end

named.forget = forget

-- Puts a lane where it stands in its queue, by its scores there, if its source is named. One
-- that was open there before (stays) may be aside, and is left so.
function named.place(s, l, open, wait, stays)
  if s.named == 0 then return false end
  if s.named <= now then
    forget(s)
    return false
  end
  local opens, waits = key.source_open(s.n), key.source_wait(s.n)
  if open and stays then
    if not call('ZSCORE', waits, l.q.name) then call('ZADD', opens, decimal(open), l.q.name) end
  elseif open then
    call('ZREM', waits, l.q.name)
    call('ZADD', opens, decimal(open), l.q.name)
  else
    call('ZREM', opens, l.q.name)
    if wait then call('ZADD', waits, wait, l.q.name) else call('ZREM', waits, l.q.name) end
  end
  return true
end

-- Marks a queue, or lanes of it, for a hint when it is placed earlier.
function named.watch(q, a)
  if not a.aside then a.aside, q.dirty = true, true end
end

-- Puts an open lane of a queue that cannot be granted from aside until it can be.
function named.put_aside(s, l, a)
  local at, set = a.stands == pool.WAIT and a.score or INF, key.aside(a)
  if call('SCARD', set) < MOST_ASIDE then
    call('SADD', set, s.n)
    named.watch(l.q, a)
  else
    at = min(at, now + LOOK_AGAIN)
  end
  named.place(s, l, false, at)
end

-- Brings back the lanes that were put aside, since the queue is placed sooner, or has none
-- left.
function named.bring_back(q, a)
  local set = key.aside(a)
  for _, n in ipairs(call('SMEMBERS', set)) do
    local l = queue.lane(q, tonumber(n))
    if l and l.open and l.pool == a.pool then named.place(source.get(l.n), l, l.open, false, false) end
  end
  call('DEL', set)
  a.aside, q.dirty = false, true
end
