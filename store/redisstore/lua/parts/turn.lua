-- A queue's turn in a claim.

local take_turn
do
  -- The first open lane of the sources that the want names; no pick is counted.
  local function first_of_sources(w, q, a)
    local best, best_score
    for _, uid in ipairs(w.sources) do
      local n = call('ZSCORE', lanes_key(uid), q.name)
      local score = n and open_score(a, n)
      if score and (not best or score < best_score or (score == best_score and before(n, best))) then best, best_score = n, score end
    end
    return best, best_score
  end

  -- How many tasks of a lane all wants are likely to take, where the first of the
  -- sets are all that there is.
  local function likely(claim, q, a, gap)
    local others = all_heads[claim.open]
    if gap > 0 or not others or not others.whole then return 1 end
    local room = min(claim.room - claim.granted, settings_of(q).in_flight - q.in_flight)
    return floor(room / max(1, #others * a.opens))
  end

  -- Picks a lane and takes from it: how many were granted, and whether the turn
  -- goes on.
  local function pick_lane(claim, h, q, a, quota, gap)
    local n, score, w = nil, nil, h.want
    if w.begin then n, score, w.begin = w.begin, open_score(a, w.begin), false
    elseif w.sources then n, score = first_of_sources(w, q, a)
    else n, score = pick_open_lane(q, a) end
    if not score then return 0, false end
    local l = get_lane(n)
    local s = get_source(l.uid)
    l.open, l.wait = score, false
    if l.queue ~= q.name then
      placing.expel(l, q, a)
      return 0, true
    end
    if s.deleted or s.pool ~= claim.pool or s.held > now then
      -- Its source was held, moved or deleted, and the lane is not placed yet.
      place_lane(l, false)
      return 0, true
    end
    local share = quota > 1 and max(1, floor(quota / (a.opens == 1 and 1 or in_band(queue_open_key(a), score)))) or 1
    local got, ahead = 0, likely(claim, q, a, gap)
    l.taking = nil
    while got < share and claim.misses < 100 do
      local more, seen = take_from_lane(claim, h, q, l, s, share - got, ahead)
      got = got + more
      if seen == 0 or h.want.ended then break end
    end
    place_lane(l, true)
    return got, claim.misses < 100 and not h.want.ended
  end

  -- Gives the queue a turn and returns how many tasks it gave.
  function take_turn(claim, h, q)
    claim.looks = claim.looks + 1
    local a = part(q, claim.pool)
    -- The end of its last turn here has placed it, though not all lanes that wait.
    if not a.had_turn or a.waits > 0 then place_queue(q, a) end
    if not a.open then return 0 end
    local s, quota, gap = settings_of(q), 1, delay_of(q)
    if gap <= 0 then
      local share = h.asks > 1 and max(1, floor(h.asks / min(in_band(claim.open, a.open), 10))) or 1
      quota = min(share, h.room, s.in_flight - q.in_flight, 100 - claim.granted)
    end
    local first, had, total, goes_on = h.at, #h.want.ids, 0, true
    while quota > 0 and goes_on do
      local got, misses = 0, claim.misses
      got, goes_on = pick_lane(claim, h, q, a, quota, gap)
      quota, total = quota - got, total + got
      if got == 0 and claim.misses == misses and goes_on then -- a look at a lane, which is bounded, too
        claim.looks = claim.looks + 1
        goes_on = claim.looks < claim.most
      end
    end
    if total > 0 then
      local before = q.next_grant
      raise_next_grant(q, gap > 0 and now_end + gap or now)
      line.note_turn(h, first, had, q, before)
      h.room = h.room - total
    end
    place_queue_everywhere(q, claim.pool)
    a.had_turn = true
    return total
  end
end
