-- Notes for the end of the claim what the want's collector holds (keys.go): a grant
-- of one task as such, since such a one ends at once.
local note_held
do
  -- Leases can outlive the note of their grant (parts/grant.lua) only where sweeps stood
  -- still, and then by no more than the longest hold: a minute in which no sweep came,
  -- or a day after an outage.
  local function may_outlive() return known.swept + 60000 < now or known.grace + DAY > now end

  -- Leases of an earlier grant of the client token, of which no note is left: how many,
  -- and the tasks.
  local function earlier_grant(w, key, one, many)
    if not may_outlive() then return 0, '' end
    local before = call('HMGET', key, one, many, w.token)
    local earlier = before[1] or before[2]
    if not earlier then return 0, '' end
    call('HDEL', key, one)
    return tonumber(before[3] or 1), string.match(earlier, '^[^/]*') .. ' '
  end

  function note_held(claim, w, ids)
    local held, key, one, many = claim.held[w.collector], held_key(w.collector), '/' .. w.token, w.token .. '/'
    if not held then
      held = {}
      claim.held[w.collector] = held
    end
    local earlier, tasks = earlier_grant(w, key, one, many)
    local k, n = #held, earlier + #w.ids
    tasks = tasks .. ids .. '/' .. w.session
    if n == 1 then held[k + 1], held[k + 2] = one, tasks
    else held[k + 1], held[k + 2], held[k + 3], held[k + 4] = w.token, n, many, tasks end
  end
end
