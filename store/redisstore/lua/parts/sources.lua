-- Turns for a want that names sources: their lanes, whichever queues they are in.
local serve_sources, again_at
do
  local LISTED_AT_ONCE = 200
  local MOST_PROMOTED = 50 -- dispatch.MaxClaimTurns

  local function has_part(claim, s) return s.known and not s.deleted and s.pool == claim.pool end

  -- Where a lane, if there is one, stands in its queue, by its scores there.
  local function stand(a, n)
    if not n then return false, false end
    local open = open_score(a, n)
    if open or a.waits == 0 then return open, false end
    if a.waits == 1 then return false, a.first_name == n and a.first end
    return false, tonumber(call('ZSCORE', queue_wait_key(a), n) or nil) or false
  end

  -- Lists the lanes of a source that is named for the first time, some in each call;
  -- those that are placed from then on are listed thereby.
  local function list_lanes(claim, s)
    local v, left = named.begin(s), LISTED_AT_ONCE - claim.listed
    if v.walked == INF then return end
    local found = call('ZRANGEBYSCORE', lanes_key(s.uid), '(' .. decimal(v.walked), '+inf', 'LIMIT', 0, left, 'WITHSCORES')
    local names, n = {}, #found / 2
    for i = 1, n do names[i] = found[2 * i - 1] end
    read_all(nil, names)
    for i, name in ipairs(names) do
      local q, lane = get_queue(name), found[2 * i]
      local a = part(q, s.pool)
      local open, wait
      if a.held then open, wait = stand(a, lane) end
      if open and (a.wait or 0) > now then named.put_aside(s, lane, q, a)
      elseif open or wait then named.place(s, lane, open, wait) end
    end
    claim.listed = claim.listed + n
    if n == left then claim.left = true end
    v.walked, v.dirty = n == left and tonumber(found[2 * n] or v.walked) or INF, true
  end

  -- Places the lane, which is no longer aside, and its queue where they belong now.
  local function place_anew(s, n)
    local l = get_lane(n)
    local q = get_queue(l.queue)
    place_lane(l, false)
    if l.open then named.place(s, n, l.open, false) end
    place_queue_everywhere(q, nil)
  end

  -- Places the lanes that can be looked at by now, the first of them.
  local function promote(claim, s)
    local left = MOST_PROMOTED - claim.woken
    local due = call('ZRANGEBYSCORE', named.wait_key(s.uid), '-inf', now, 'LIMIT', 0, left + 1)
    if #due > left then claim.left = true end
    for i = 1, min(#due, left) do place_anew(s, due[i]) end
    claim.woken = claim.woken + min(#due, left)
  end

  -- The first of the open lanes of all sources, its source, and the source that has the
  -- first. Every eighth turn for which one has goes to the lane that waits longest.
  local function next_lane(of)
    local n, score, lead
    for _, s in ipairs(of) do
      local m = call('ZRANGE', named.open_key(s.uid), 0, 0, 'WITHSCORES')
      local at = tonumber(m[2] or nil)
      if at and (not n or at < score or (at == score and before(m[1], n))) then n, score, lead = m[1], at, s end
    end
    if not n or lead.named.turns % 8 < 7 then return n, lead, lead end
    local whose, since = lead, score % BAND
    local band = floor(score / BAND)
    for _, s in ipairs(of) do
      local key = named.open_key(s.uid)
      local m = call('ZRANGE', key, 0, 0, 'WITHSCORES')
      if m[1] then
        local name, at = oldest(key, m[1], tonumber(m[2]))
        local b, t = floor(at / BAND), at % BAND
        if t < since or (t == since and (b < band or (b == band and before(name, n)))) then n, whose, since, band = name, s, t, b end
      end
    end
    return n, whose, lead
  end

  -- Gives the queue of an open lane a turn, which begins with that lane, and returns
  -- how many tasks it gave. The lane is put aside where nothing more can be had now.
  local function turn_of(claim, h, s, n)
    local l = get_lane(n)
    local q = get_queue(l.queue)
    local a = part(q, claim.pool)
    if l.pool ~= claim.pool or not open_score(a, l.name) then
      claim.looks = claim.looks + 1
      place_anew(s, n)
      return 0
    end
    h.want.begin = l.name
    local got = take_turn(claim, h, q)
    h.want.begin = false
    if not a.open and open_score(a, l.name) then named.put_aside(s, l.name, q, a) end
    return got
  end

  local function soonest(claim, at)
    if at and at < claim.again then claim.again = at end
  end

  local function take_turns(claim, h, of, bound)
    while not h.want.ended and h.room > 0 do
      local n, s, lead = next_lane(of)
      if not n then return end
      if bound() then
        claim.left = true
        return
      end
      if turn_of(claim, h, s, n) > 0 then lead.named.turns, lead.named.dirty = lead.named.turns + 1, true end
    end
  end

  -- When a queue that gave a want nothing can probably give it something. A hint comes if that becomes earlier.
  function again_at(w, q, a)
    if a.wait then named.watch(q, a) end
    if a.wait or not w.sources then return a.wait or INF end
    local at = INF
    for _, uid in ipairs(w.sources) do
      local s, _, wait = get_source(uid), stand(a, call('ZSCORE', lanes_key(uid), q.name))
      at = min(at, wait or INF)
      if s.known and not s.deleted then
        named.begin(s)
        named.save(s)
      end
    end
    return at
  end

  function serve_sources(claim, h, bound)
    local of = {}
    for _, uid in ipairs(h.want.sources) do
      local s = get_source(uid)
      if has_part(claim, s) and s.held > now then soonest(claim, s.held)
      elseif has_part(claim, s) and not of[uid] then
        of[uid], of[#of + 1] = true, s
        list_lanes(claim, s)
        promote(claim, s)
      end
    end
    take_turns(claim, h, of, bound)
    for _, s in ipairs(of) do
      named.save(s)
      soonest(claim, tonumber(call('ZRANGE', named.wait_key(s.uid), 0, 0, 'WITHSCORES')[2] or nil))
    end
  end
end
