-- What a client token was granted: a note of the ids and the first fence (the
-- others follow one by one), of the call that last answered from it, and of what
-- the grant did to its queues. It ends 10 minutes after the last of its leases
-- (renewed: up to 15, dispatch.Remembered).
local memory_ends -- by the last deadline, as text

local grants = {}
do
  local GRANT_MEMORY = 600000
  -- The call, the first fence, the ids, the turns; and of a turn the queue, its next
  -- grant before and after, the first of the ids and how many.
  local NOTE, TURN = '>Bc0I8I2c0I2c0', '>I2c0ddI2I2'

  local function pack_grant(by, fence, ids, turns) return struct.pack(NOTE, #by, by, fence, #ids, ids, #turns, turns) end

  function grants.note(w, ids)
    local end_text = memory_ends[w.deadline]
    if not end_text then
      end_text = decimal(w.deadline + GRANT_MEMORY - 1)
      memory_ends[w.deadline] = end_text
    end
    call('SET', w.grant_key, pack_grant(w.call, w.fence, ids, w.turns), 'PXAT', end_text)
  end

  -- Reads a packed note; nil where there is none.
  function grants.read(packed)
    if not packed then return nil end
    local by, fence, ids, turns = struct.unpack(NOTE, packed)
    return { call = by, fence = fence, ids = ids, turns = turns }
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

  -- Answers a repeated client token, given the key of its grant and the packed note
  -- there, with what is still held, and notes that this call has answered; nil when
  -- the token has no grant here.
  function grants.replay(key, packed, holder, by)
    local note = grants.read(packed)
    if not note then return nil end
    if note.call ~= by then call('SET', key, pack_grant(by, note.fence, note.ids, note.turns), 'KEEPTTL') end
    local held = {}
    grants.each_held(note, holder, function(id, r, raw) held[#held + 1] = task_reply(id, raw, r, HANDED_OUT) end)
    return held
  end
end

-- at each call
memory_ends = {}
