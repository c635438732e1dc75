-- What a client token was granted: a note of the ids and the first fence (the
-- others follow one by one), of the call that last answered from it, and of what
-- the grant did to its queues. It ends 10 minutes after the last of its leases.
local memory_ends -- by the last deadline, as text

local note_grant
do
  local GRANT_MEMORY = 600000

  function note_grant(w, ids)
    local end_text = memory_ends[w.deadline]
    if not end_text then
      end_text = decimal(w.deadline + GRANT_MEMORY - 1)
      memory_ends[w.deadline] = end_text
    end
    local note = cmsgpack.pack({ w.call, w.fence, ids, unpack(w.turns) })
    call('SET', w.grant_key, note, 'PXAT', end_text)
  end
end

-- The note: the call, the first fence, the ids, and of each turn, flat: its queue,
-- the queue's next grant before and after, its first id and how many.
local AT_TURNS = 4
local function unpack_grant(packed) return packed and cmsgpack.unpack(packed) or nil end

-- Calls each with the id, the record and its place in the note of what is still
-- held of the grant.
local function each_held(note, holder, each)
  for i, id in ipairs(ids_of(note[3])) do
    local raw = call('GET', task_key(id))
    local r = read_record(raw)
    if r and r.digest == struct.pack('>BI8', LEASED_RECORD, note[2] + i - 1) .. holder then each(id, r, raw, i) end
  end
end

-- Answers a repeated client token, given the key of its grant and the packed note
-- there, with what is still held, and notes that this call has answered; nil when
-- the token has no grant here.
local function replay_grant(key, packed, holder, by)
  local note = unpack_grant(packed)
  if not note then return nil end
  if note[1] ~= by then
    note[1] = by
    call('SET', key, cmsgpack.pack(note), 'KEEPTTL')
  end
  local held = {}
  each_held(note, holder, function(id, r, raw) held[#held + 1] = task_reply(id, raw, r, HANDED_OUT) end)
  return held
end

-- at each call
memory_ends = {}
