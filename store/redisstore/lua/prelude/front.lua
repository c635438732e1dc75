-- What of a lane's sets says where the lane belongs: the rank of the first of lane ready,
-- and the score of the first of lane later that waits. The lane's record has them, so
-- that nearly no call reads the sets for it; what changes a set says so here.
do
  front = {}

  local function first_score(key) return tonumber(call('ZRANGE', key, '0', '0', 'WITHSCORES')[2] or nil) end

  function front.rank(l)
    if l.rank == nil then
      local score = first_score(ready_key(l.name))
      l.rank = score and floor(score / BAND) or false
    end
    return l.rank
  end

  function front.later(l)
    if l.later == nil then
      local score = first_score(later_key(l.name))
      l.later = score and score < LEASED_FROM and score or false
    end
    return l.later
  end

  -- Notes what is first now; nil = to be read, since the first may have left.
  function front.is(l, field, value)
    if l[field] ~= value then l[field], l.dirty = value, true end
  end

  -- Notes what came to a set: a rank, or a score of lane later; infinite = nothing.
  function front.came(l, field, value)
    if l[field] ~= nil and value < (l[field] or INF) then front.is(l, field, value) end
  end
end
