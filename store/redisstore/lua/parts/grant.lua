-- What a client token was granted. Of a grant of which something is held its collector
-- has a note (keys.go): the session, the call that last answered from it, the first fence
-- (the others follow one by one), the ids, and what the grant did to its queues. With the
-- last of its leases the note ends, and the token was used (prelude/task.lua).
local grants = {}
do
  -- The session, the call, the first fence, the ids, the turns; and of a turn the queue,
  -- its next grant before and after, the first of the ids and how many.
  local NOTE, TURN = '>Bc0Bc0I8I2c0I2c0', '>I2c0ddI2I2'

  local function pack_note(session, by, fence, ids, turns)
    return struct.pack(NOTE, #session, session, #by, by, fence, #ids, ids, #turns, turns)
  end

  -- Notes what a want was granted: one task as such, since such a note ends at once.
  function grants.note(w, ids)
    local key, n, note = held_key(w.collector), #w.ids, pack_note(w.session, w.call, w.fence, ids, w.turns)
    if n == 1 then call('HSET', key, '/' .. w.token, note)
    else call('HSET', key, w.token, decimal(n), w.token .. '/', note) end
  end

  -- The packed note of what a client token was granted; false where nothing of it is held.
  function grants.find(collector, token)
    local found = call('HMGET', held_key(collector), '/' .. token, token .. '/')
    return found[1] or found[2]
  end

  -- Reads a packed note; nil where there is none.
  function grants.read(packed)
    if not packed then return nil end
    local session, by, fence, ids, turns = struct.unpack(NOTE, packed)
    return { session = session, call = by, fence = fence, ids = ids, turns = turns }
  end

  -- What is known of the client tokens that are asked for, each with its collector and
  -- the holder's digest: the packed note, true where it was used and nothing is held, or
  -- false.
  function grants.known(asks)
    if #asks == 0 then return {} end
    local found, digests = {}, {}
    for i, a in ipairs(asks) do found[i], digests[i] = grants.find(a.collector, a.token), a.holder end
    for i, used in ipairs(noted.used.known(digests)) do found[i] = found[i] or used end
    return found
  end

  function grants.pack_turn(q, before, first, n) return struct.pack(TURN, #q.name, q.name, before, q.next_grant, first, n) end

  function grants.each_turn(note, each)
    local at = 1
    while at <= #note.turns do
      local name, before, after, first, n, to = struct.unpack(TURN, note.turns, at)
      each(name, before, after, first, n)
      at = to
    end
  end

  -- Calls each with the id, the record and its place in the note of what is still
  -- held of the grant.
  function grants.each_held(note, holder, each)
    for i, id in ipairs(ids_of(note.ids)) do
      local raw = call('GET', task_key(id))
      local r = read_record(raw)
      if r and r.digest == struct.pack('>BI8', LEASED_RECORD, note.fence + i - 1) .. holder then each(id, r, raw, i) end
    end
  end

  -- Answers a repeated client token, given what is known of it, with what is still held,
  -- and notes that this call has answered.
  function grants.replay(ask, found)
    local held = {}
    if found == true then return held end
    local note = grants.read(found)
    if note.call ~= ask.call then
      local field = string.find(note.ids, ' ', 1, true) and ask.token .. '/' or '/' .. ask.token
      call('HSET', held_key(ask.collector), field, pack_note(note.session, ask.call, note.fence, note.ids, note.turns))
    end
    grants.each_held(note, ask.holder, function(id, r, raw) held[#held + 1] = task_reply(id, raw, r, HANDED_OUT) end)
    return held
  end
end
