-- Leases that succeeded, of which their queues are told together: by queue, how many
-- there are of which it was not told yet, and their shortest and longest fetch.
local untold

local function untold_of(q)
  local u = untold[q]
  if not u then
    u = { queue = q, n = 0, shortest = INF, longest = 0 }
    untold[q] = u
  end
  return u
end

-- Tells a queue of its leases that ended so far.
local function tell(u)
  if u.n == 0 then return end
  lease_ended(u.queue, SUCCEEDED, u.shortest, 0, 0, nil, u.n, u.longest)
  u.n, u.shortest, u.longest = 0, INF, 0
end

-- at each call
untold = {}
