-- How a claim picks from an open set, and what it knows of its pool.

local new_claim, first_queues, pick_queue, pick_open_lane, promote_pool, oldest
do
  -- So many queues of a pool are read at once, to be picked one after the other.
  local READ_QUEUES = 10
  local MOST_TURNS, MOST_PROMOTED, ONE_MORE = 50, 50, '51' -- dispatch.MaxClaimTurns, of either

  -- Over the first members of all priority bands, the one that waits longest,
  -- given the first of all.
  function oldest(set, name, score)
    local band = floor(score / BAND)
    while true do
      local m = call('ZRANGEBYSCORE', set, decimal((band + 1) * BAND), '+inf', 'LIMIT', '0', '1', 'WITHSCORES')
      if not m[1] then return name, score end
      local other = tonumber(m[2])
      band = floor(other / BAND)
      if other % BAND < score % BAND then name, score = m[1], other end
    end
  end

  -- room is how many tasks the wants of the claim ask for.
  function new_claim(pool, wants)
    local picks, room = 'picks:' .. pool, 0
    for _, w in ipairs(wants) do room = room + w.max end
    local f = read_shard('fence', picks)
    return {
      pool = pool, open = pool_open_key(pool), wait = pool_wait_key(pool), picks_field = picks,
      room = room, looks = 0, most = MOST_TURNS, woken = 0, listed = 0, again = INF, granted = 0, misses = 0,
      fence = tonumber(f[4] or 0), picks = tonumber(f[5] or 0), orphaned = 0, dropped = 0, soonest = {}, leases = {}, lanes = {},
      answers = {}, lane = false, stopped = false,
    }
  end

  -- The first queues of the pool, which are read with their first lanes, and with
  -- other keys of strings, whose values are returned beside.
  function first_queues(claim, keys)
    local h = all_heads and all_heads[claim.open]
    if h and (#h > 0 or h.whole) then return h end
    h = read_heads(claim.open, max(1, min(claim.room - claim.granted, READ_QUEUES)))
    local names, alone = {}, {}
    for i = 1, #h do names[i] = h[i].name end
    local found = read_all(nil, names, keys)
    for i = 1, #names do
      local a = part(queues[names[i]], claim.pool)
      if a.opens == 1 then alone[#alone + 1] = a.head_name end
    end
    if #alone == 1 then get_lane(alone[1]) else read_all(alone) end
    return h, found
  end

  -- Picks a queue of the pool: the first, every eighth time the one that waits
  -- longest; nil when there is none.
  function pick_queue(claim)
    local head = first_queues(claim)[1]
    if not head then return nil end
    local name, score = head.name, head.score
    claim.picks, claim.picked = claim.picks + 1, true
    if claim.picks % 8 == 0 then name, score = oldest(claim.open, name, score) end
    local q = get_queue(name)
    local a = part(q, claim.pool)
    a.open, a.wait = score, false
    return q
  end

  -- Picks a lane of the queue in the same way.
  function pick_open_lane(q, a)
    local score, n = first_open(a)
    if not score then return nil end
    a.picks, q.dirty = a.picks + 1, true
    if a.picks % 8 == 0 and a.opens > 1 then n, score = oldest(queue_open_key(a), n, score) end
    return n, score
  end

  -- Places the queues that can be granted from by now, the first of them.
  function promote_pool(claim)
    local due = call('ZRANGEBYSCORE', claim.wait, '-inf', decimal(now), 'LIMIT', '0', ONE_MORE, 'WITHSCORES')
    if #due == 0 then return end
    local names = {}
    claim.stopped = #due > 2 * MOST_PROMOTED
    for i = 1, min(#due, 2 * MOST_PROMOTED), 2 do names[#names + 1] = due[i] end
    read_all(nil, names)
    for i, name in ipairs(names) do
      if placing.promoted >= placing.MOST then break end
      local q = get_queue(name)
      local a = part(q, claim.pool)
      a.open, a.wait = false, tonumber(due[2 * i])
      place_queue(q, a)
    end
  end
end

-- Writes what the claim took and counted.
local function finish_claim(claim)
  for i = 1, n_lanes do
    local l = lane_list[i]
    if l.ahead then write_taken(l) end
  end
  if claim.picked or claim.granted > 0 then
    fields = { claim.picks_field, decimal(claim.picks), 'fence', decimal(claim.fence) }
  end
  tally('granted', claim.granted)
  tally('orphaned', claim.orphaned)
  tally('dropped', claim.dropped)
  local leases, n = claim.leases, #claim.leases
  for name, terms in pairs(claim.soonest) do
    leases[n + 1], leases[n + 2] = terms.deadline_text, name
    n = n + 2
  end
  if n > 0 then call('ZADD', LEASES, 'LT', unpack(leases)) end
end
