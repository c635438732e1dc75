-- Grants tasks of a pool to wants (dispatch.Claims); the order is that of
-- dispatch/scheduling.md.
--
-- KEYS[1]  the shard key
-- ARGV     pool, wants; per want: what it is, packed (parts/want.lua; max bytes
--          0 = no limit, lease 0 = the source's), its sources, its queues
-- Returns  now, next (0 = never), wait reason, more, again (0 = not known); the lanes,
--          6 values each (as of begin_tasks); and the answers, flat: per want whether
--          its client token was used, and either how many tasks it has and those: of
--          each the end of its id, its record and, where there are, its details, with
--          the number of its lane (from 1) before the first and where that changes; or,
--          repeated, a list of what is still held
-- Cost     O(log n) a task and a turn; at most 100 tasks, 50 turns, 50 queues promoted;
--          for wants that name sources 50 lanes promoted and 200 listed
--
-- uses: ids grant held pick outlook ahead fence take turn sources want
local pool, CLAIM, answered, empty

local token_keys, answer
do
  local function bound() return CLAIM.looks >= CLAIM.most or CLAIM.granted >= 100 or CLAIM.misses >= 100 end

  -- Gives turns to the queues that a want names, ascending.
  local function serve_queues(w)
    local names, seen = {}, {}
    for _, name in ipairs(w.queues) do
      if not seen[name] then seen[name], names[#names + 1] = true, name end
    end
    table.sort(names, before)
    for _, name in ipairs(names) do
      local q = get_queue(name)
      while not w.ended and #w.ids < w.max do
        if bound() then
          CLAIM.left = true
          return
        end
        local a = q.parts[pool]
        if not a or not a.held then break end
        if take_turn(CLAIM, w, q) == 0 then
          local at = again_at(w, q, a)
          CLAIM.again, CLAIM.left = min(CLAIM.again, at), CLAIM.left or at <= now -- more was due than is promoted at once
          break
        end
      end
    end
  end

  local function serve(w)
    while not w.ended and #w.ids < w.max do
      if bound() then
        CLAIM.stopped = true
        return
      end
      local q = pick_queue(CLAIM)
      if not q then return end
      take_turn(CLAIM, w, q)
    end
  end

  local function grant(w)
    if w.queues then serve_queues(w) elseif w.sources then serve_sources(CLAIM, w, bound) else serve(w) end
    if #w.ids > 0 then
      local ids = table.concat(w.ids, ' ')
      note_grant(w, ids)
      note_held(CLAIM, w, ids)
    end
  end

  -- The keys of what the client token of each want was granted, and of the only
  -- session of its collector that is granted anything.
  function token_keys(wants)
    local keys = {}
    for i, w in ipairs(wants) do
      keys[2 * i - 1], keys[2 * i] = w.grant_key, keep_key(w.collector)
    end
    return keys
  end

  -- Answers a want with what it was granted before, as its note says, or by grant;
  -- that of a session that was replaced, where another is kept, by neither.
  function answer(w, note, keep)
    local answers = CLAIM.answers
    local at = #answers + 1
    answers[at], answers[at + 1], CLAIM.lane = 0, 0, false
    if keep and keep ~= w.session then return end
    if answered[w.holder_name] then
      -- The same client token again in this claim: what it was granted is read anew.
      flush_writes()
      note = call('GET', w.grant_key)
    end
    answered[w.holder_name] = true
    local replay = replay_grant(w.grant_key, note, w.holder, w.call)
    if replay then
      answers[at], answers[at + 1] = 1, replay
    elseif not empty then
      grant(w)
      answers[at], answers[at + 1] = #w.ids > 0 and 1 or 0, #w.ids
    end
  end
end

-- at each call
pool, answered = ARGV[1], {}
local at, wants, room = 3, {}, 0
for i = 1, tonumber(ARGV[2]) do
  wants[i], at = read_want(at)
  room = room + wants[i].max
end
CLAIM = new_claim(pool, room)
local heads, tokens = first_queues(CLAIM, token_keys(wants))
-- An empty pool is what an idle dispatcher meets each second; a paused one is as
-- good as empty.
local paused = CLAIM.paused > now
empty = paused or #heads == 0 and call('EXISTS', CLAIM.wait) == 0
if not empty then promote_pool(CLAIM) end
for i, w in ipairs(wants) do answer(w, tokens[2 * i - 1], tokens[2 * i]) end
if empty then
  local ends = paused and CLAIM.paused < FOREVER and CLAIM.paused or 0
  return { now, ends, paused and 3 or 1, 0, ends, CLAIM.lanes, CLAIM.answers }
end
finish_claim(CLAIM)
finish(false)
local next_at, wait, more = outlook(CLAIM)
local reply = { now, next_at, wait, more, CLAIM.again < INF and CLAIM.again or 0, CLAIM.lanes, CLAIM.answers }
CLAIM = nil -- Redis need not keep the records until the next claim
return reply
