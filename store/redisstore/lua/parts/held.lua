-- Notes what a want's collector holds (keys.go): a grant of one task as such, since such
-- a one ends at once.
local note_held, may_outlive
do
  -- Leases can outlive the note of their grant (parts/grant.lua) only where sweeps stood
  -- still, and then by no more than the longest hold: a minute in which no sweep came,
  -- or a day after an outage.
  function may_outlive(swept, grace) return swept + 60000 < now or grace + DAY > now end

  -- Leases of an earlier grant of the client token, of which no note is left: how many,
  -- and the tasks.
  local function earlier_grant(w, key)
    local one, many = '/' .. w.token, w.token .. '/'
    local before = call('HMGET', key, one, many, w.token)
    local earlier = before[1] or before[2]
    if not earlier then return 0, '' end
    call('HDEL', key, one)
    return tonumber(before[3] or 1), string.match(earlier, '^[^/]*') .. ' '
  end

  function note_held(w, ids, outlive)
    local key, n, tasks = held_key(w.collector), #w.ids, ids .. '/' .. w.session
    if outlive then
      local earlier, earlier_ids = earlier_grant(w, key)
      n, tasks = n + earlier, earlier_ids .. tasks
    end
    if n == 1 then call('HSET', key, '/' .. w.token, tasks)
    else call('HSET', key, w.token, decimal(n), w.token .. '/', tasks) end
  end
end
