-- Wants of a claim that follow each other and take anything of the pool: a turn of a
-- queue goes on from one to the next. One that names queues or sources is a line of
-- its own.
local line
do
  line = {}

  -- Continues with the next want and begins its answer; nil if there is none. room is what they have together.
  function line.go_on(claim, h)
    local w = h.want
    if w then h.room = h.room - w.max + #w.ids end
    h.at = h.at + 1
    w = h.wants[h.at]
    h.want = w
    if w then
      local answers = claim.answers
      local n = #answers
      answers[n + 1], answers[n + 2], w.answer, claim.lane = 0, 0, n + 1, false
    end
    return w
  end

  function line.begin(claim, wants)
    local h = { wants = wants, want = false, at = 0, room = 0, asks = 0 }
    for _, w in ipairs(wants) do h.room = h.room + w.max end
    h.asks = min(h.room, 100)
    line.go_on(claim, h)
    return h
  end

  -- The want to give a task to: one that has room.
  function line.open(claim, h)
    local w = h.want
    if w and #w.ids == w.max then return line.go_on(claim, h) end
    return w
  end

  -- Notes a turn that began with the first-th want, which had so many tasks then.
  function line.note_turn(h, first, had, q, before)
    local turn, of
    for i = first, h.at do
      local w = h.wants[i]
      local n = #w.ids - had
      if n > 0 then
        if n ~= of then turn, of = grants.pack_turn(q, before, had + 1, n), n end
        w.turns = w.turns and w.turns .. turn or turn
      end
      if had > 0 then had, of = 0, nil end
    end
  end

  -- Answers the wants that were not come to, and notes what the others were granted.
  function line.finish(claim, h)
    while h.want do line.go_on(claim, h) end
    for _, w in ipairs(h.wants) do
      if #w.ids > 0 then
        local ids = #w.ids == 1 and w.ids[1] or table.concat(w.ids, ' ')
        grants.note(w, ids)
        claim.answers[w.answer], claim.answers[w.answer + 1] = 1, #w.ids
      end
    end
  end
end
