-- What of a lane's set says where the lane belongs: the rank of the first of lane ready,
-- and the score of the first of lane later. The lane's record has them, so that nearly no
-- call reads the set for it; what changes the set says so here.
do
  local LATER_TEXT, BELOW_LATER, BELOW_LEASED = '562949953421312', '(562949953421312', '(1125899906842624'

  front = {}

  -- The first score of the lane's set that is in a range, false for none.
  local function first_score(l, from, below)
    return tonumber(call('ZRANGEBYSCORE', tasks_key(l.name), from, below, 'LIMIT', '0', '1', 'WITHSCORES')[2] or nil) or false
  end

  function front.rank(l)
    if l.rank == nil then
      local score = first_score(l, '-inf', BELOW_LATER)
      l.rank = score and floor(score / BAND)
    end
    return l.rank
  end

  function front.later(l)
    if l.later == nil then
      local score = first_score(l, LATER_TEXT, BELOW_LEASED)
      l.later = score and score - LATER_FROM
    end
    return l.later
  end

  -- Notes what is first now; nil = to be read, since the first may have left.
  function front.is(l, field, value)
    if l[field] ~= value then l[field], l.dirty = value, true end
  end

  -- Notes what came to the set: a rank, or a score of lane later; infinite = nothing.
  function front.came(l, field, value)
    if l[field] ~= nil and value < (l[field] or INF) then front.is(l, field, value) end
  end
end
