-- What a claim returns about its pool.
local outlook
do
  -- Whether a queue of pool wait has something to grant behind its gates, or waits
  -- for a held source.
  local function why(claim, name)
    local q = get_queue(name)
    local a = part(q, claim.pool)
    if a.opens > 0 then
      settings_of(q)
      return q.held > now and 3 or 2
    end
    if a.waits == 1 and a.first == INF or a.waits > 1 and call('ZCOUNT', queue_wait_key(a), '+inf', '+inf') > 0 then return 3, true end
    return 1
  end

  -- Whether a queue is in pool open: one of those that this call has met, as nearly
  -- always, or another.
  local function any_open(claim)
    local h = all_heads[claim.open]
    if #h > 0 then return true end
    if h.whole then return false end
    for i = 1, n_queues do
      if part(queue_list[i], claim.pool).open then return true end
    end
    return call('EXISTS', claim.open) == 1
  end

  -- When the pool has something next, why it has nothing now, and whether a bound
  -- ended the claim before its end. Wait: 0 none, 1 no tasks, 2 throttled, 3 held.
  function outlook(claim)
    local left = claim.left and 1 or 0
    if placing.promoted >= placing.MOST then claim.stopped = true end
    if any_open(claim) then return now, 0, claim.stopped and 1 or left end
    local first = call('ZRANGE', claim.wait, '0', '0', 'WITHSCORES')
    if not first[1] then return 0, 1, left end
    local score = tonumber(first[2])
    local more = claim.stopped and score <= now and 1 or left
    local next_at = score < INF and score or 0
    local wait, source_held = why(claim, first[1])
    if wait == 1 or source_held then
      local held = call('ZRANGEBYSCORE', claim.wait, '+inf', '+inf', 'LIMIT', '0', '1')
      if held[1] and held[1] ~= first[1] then
        local other, also_source = why(claim, held[1])
        if other ~= 1 and not (source_held and also_source) then wait = other end
      end
    end
    return next_at, wait, more
  end
end
