-- The lanes of a source that claims name ("source open" and "source wait" in
-- dispatch/scheduling.md), so that such a claim finds the next without a look at the
-- others. Of other sources, which is nearly all, nothing of this is kept.
do
  -- So long its lanes are listed after a claim has named it.
  local MEMORY = DAY
  -- So many lanes of a queue come back as soon as it is placed sooner; a further one is
  -- looked at again after a second.
  local MOST_ASIDE, LOOK_AGAIN = 100, 1000
  local NAMED = '>ddI4'

  local function open_key(uid) return P .. 'so:' .. uid end
  local function wait_key(uid) return P .. 'sw:' .. uid end
  local function aside_key(a) return P .. 'qa:' .. a.pool .. ':' .. a.queue end

  local function forget(s)
    call('HDEL', source_key(s.uid), 'named')
    call('UNLINK', open_key(s.uid), wait_key(s.uid))
    s.named = false
  end

  named = { open_key = open_key, wait_key = wait_key }

  -- Of a source: until when its lanes are listed, the last that was listed in order
  -- (infinite: all are), and how many turns its lanes were first for.
  function named.read(packed)
    local ends, walked, turns = struct.unpack(NAMED, packed)
    return { ends = ends, walked = walked, turns = turns, dirty = false }
  end

  -- Notes that a claim names the source.
  function named.begin(s)
    local v = s.named
    if not v then
      v = { ends = 0, walked = 0, turns = 0, dirty = true }
      s.named = v
    end
    if v.ends < now + MEMORY / 2 then v.ends, v.dirty = now + MEMORY, true end
    return v
  end

  function named.save(s)
    local v = s.named
    if not v.dirty then return end
    v.dirty = false
    call('HSET', source_key(s.uid), 'named', struct.pack(NAMED, v.ends, v.walked, v.turns % 8))
  end

  -- Puts a lane where it stands in its queue, by its scores there. One that was open
  -- there before (stays) may be aside, and is left so.
  function named.place(s, name, open, wait, stays)
    if s.named.ends <= now then
      forget(s)
    elseif open and stays then
      if not call('ZSCORE', wait_key(s.uid), name) then call('ZADD', open_key(s.uid), decimal(open), name) end
    elseif open then
      call('ZREM', wait_key(s.uid), name)
      call('ZADD', open_key(s.uid), decimal(open), name)
    else
      call('ZREM', open_key(s.uid), name)
      if wait then call('ZADD', wait_key(s.uid), wait, name) else call('ZREM', wait_key(s.uid), name) end
    end
  end

  -- Sends a hint that a task of the pool is available at `at`, even if the queue is not placed earlier.
  function named.tell(a, at) tell_of(a.pool, at) end

  -- Marks a queue, or lanes of it, for a hint when it is placed earlier.
  function named.watch(q, a)
    if not a.aside then a.aside, q.dirty = true, true end
  end

  -- Puts an open lane of a queue that cannot be granted from aside until it can be.
  function named.put_aside(s, name, q, a)
    local at, key = a.wait or INF, aside_key(a)
    if call('SCARD', key) < MOST_ASIDE then
      call('SADD', key, name)
      named.watch(q, a)
    else
      at = min(at, now + LOOK_AGAIN)
    end
    named.place(s, name, false, at)
  end

  -- Brings back the lanes that were put aside, since the queue is placed sooner, or has
  -- none left.
  function named.bring_back(q, a)
    local key = aside_key(a)
    for _, n in ipairs(call('SMEMBERS', key)) do
      local l = get_lane(n)
      local s = get_source(l.uid)
      local open = s.named and l.pool == a.pool and open_score(a, l.name)
      if open then named.place(s, l.name, open, false) end
    end
    call('DEL', key)
    a.aside, q.dirty = false, true
  end
end
