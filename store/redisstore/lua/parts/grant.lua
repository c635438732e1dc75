-- What a client token was granted. Of a grant of which something is held its collector
-- has a note (internal/key): the session, the calls that answered from it, the first fence
-- (the others follow one by one), the ids, and what the grant did to its queues. With the
-- last of its leases the note ends, and the token was used (prelude/task.lua).
local grants = {}
do
  -- The session, the calls, the first fence, the ids, the turns; and of a turn the queue,
  -- its next grant before and after, the first of the ids and how many.
  local NOTE, TURN = '>Bc0I2c0I8I2c0I2c0', '>I2c0ddI2I2'

  -- The calls of a note are packed one after the other. bounds.MaxGrantCalls: of more
  -- none is kept.
  local CALL, MAX_CALLS = '>Bc0', 16

  local function pack_call(by) return struct.pack(CALL, #by, by) end

  local function pack_note(session, calls, fence, ids, turns)
    return struct.pack(NOTE, #session, session, #calls, calls, fence, #ids, ids, #turns, turns)
  end

  -- The calls of a note without one of them, which is false where that is none of them;
  -- and how many there are.
  local function without(calls, by)
    local others, n, at = '', 0, 1
    while at <= #calls do
      local other
      other, at = struct.unpack(CALL, calls, at)
      if other ~= by then others = others .. pack_call(other) end
      n = n + 1
    end
    return #others < #calls and others, n
  end

  -- Notes which calls have answered.
  local function note_calls(collector, token, note, calls)
    local field = string.find(note.ids, ' ', 1, true) and token .. '/' or '/' .. token
    call('HSET', held_key(collector), field, pack_note(note.session, calls, note.fence, note.ids, note.turns))
  end

  -- Notes what a want was granted: one task as such, since such a note ends at once.
  function grants.note(w, ids)
    local key, n, note = held_key(w.collector), #w.ids, pack_note(w.session, pack_call(w.call), w.fence, ids, w.turns)
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
    local session, calls, fence, ids, turns = struct.unpack(NOTE, packed)
    return { session = session, calls = calls, fence = fence, ids = ids, turns = turns }
  end

  -- Takes a call out of those of a note; says whether that was the last of them.
  function grants.give_back(collector, token, note, by)
    local others = without(note.calls, by)
    if others == '' then return true end
    if others then note_calls(collector, token, note, others) end
    return false
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
    local others, n = without(note.calls, ask.call)
    if n > 0 and not others then
      note_calls(ask.collector, ask.token, note, n < MAX_CALLS and note.calls .. pack_call(ask.call) or '')
    end
    grants.each_held(note, ask.holder, function(id, r, raw) held[#held + 1] = task_reply(id, raw, r, WITH.holder) end)
    return held
  end
end
