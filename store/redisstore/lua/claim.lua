-- Grants tasks of a pool to wants (dispatch.Claims.Claim), in the order of
-- dispatch/scheduling.md.
--
-- KEYS[1]  the shard key
-- ARGV     pool, the version of the holds applied to the wants, number of wants; per
--          want: its packed fields (parts/want.lua; max bytes 0 = no limit, lease 0 =
--          the source's), its sources, its queues
-- Returns  -1 if the shard has later holds. Else now, next (0 = never), wait reason,
--          more, again (0 = not known); the lanes, 6 values each (as of begin_tasks);
--          then flat, per want: whether its client token was used, and for a new grant
--          the number of its tasks and each task, for a repeat a list of the tasks that
--          are still held. A task is the end of its id, its record and any details; the
--          number of its lane (from 1) precedes the first task and each change of lane
-- Cost     O(log n) a task and a turn; at most 100 tasks, 50 turns, 50 queues promoted;
--          for wants that name sources 50 lanes promoted and 200 listed
--
-- uses: ids grant pick outlook ahead fence line take turn sources want
local CLAIM

local keep_keys, answer_all
do
  local function bound() return CLAIM.looks >= CLAIM.most or CLAIM.granted >= 100 or CLAIM.misses >= 100 end

  -- Gives turns to the queues that a want names, ascending.
  local function serve_queues(h)
    local w, names, seen = h.want, {}, {}
    for _, name in ipairs(w.queues) do
      if not seen[name] then seen[name], names[#names + 1] = true, name end
    end
    table.sort(names, before)
    for _, name in ipairs(names) do
      local q = get_queue(name)
      while not w.ended and h.room > 0 do
        if bound() then
          CLAIM.left = true
          return
        end
        local a = part(q, CLAIM.pool)
        if not a.held then break end
        if take_turn(CLAIM, h, q) == 0 then
          local at = again_at(w, q, a)
          CLAIM.again, CLAIM.left = min(CLAIM.again, at), CLAIM.left or at <= now -- more was due than is promoted at once
          break
        end
      end
    end
  end

  -- Gives the queues of the pool their turns.
  local function serve(h)
    while line.open(CLAIM, h) do
      if h.want.ended then line.go_on(CLAIM, h)
      elseif bound() then
        CLAIM.stopped = true
        return
      else
        local q = pick_queue(CLAIM)
        if not q then return end
        take_turn(CLAIM, h, q)
      end
    end
  end

  local function grant(wants)
    local h = line.begin(CLAIM, wants)
    if CLAIM.empty then -- nothing is looked at
    elseif h.want.queues then serve_queues(h)
    elseif h.want.sources then serve_sources(CLAIM, h, bound)
    else serve(h) end
    line.finish(CLAIM, h)
  end

  -- The keys of the only session of each want's collector that is granted anything.
  function keep_keys(wants)
    local keys = {}
    for i, w in ipairs(wants) do keys[i] = keep_key(w.collector) end
    return keys
  end

  -- Answers the wants in their order, given the values of their keys and what is known of
  -- their client tokens. Of those, asked has the line in which they were last.
  function answer_all(wants, keeps, tokens)
    local together, answers, asked = {}, CLAIM.answers, {}
    local function grant_together()
      if #together > 0 then grant(together) end
      together = {}
    end
    for i, w in ipairs(wants) do
      local found, keep = tokens[i], keeps[i]
      local replaced, again = keep and keep ~= w.session, asked[w.holder_name] -- replaced by the one that is kept
      local alone, before = w.queues or w.sources, nil
      if again == together or replaced or alone then grant_together() end
      if again and not replaced then found = grants.find(w.collector, w.token) end -- it may have been granted something now
      if replaced then before = false
      elseif found then
        grant_together()
        flush_writes()
        before = grants.replay(w, found)
      end
      if before == nil then
        together[#together + 1], asked[w.holder_name] = w, together
        if alone then grant_together() end
      else
        answers[#answers + 1], answers[#answers + 2] = before and 1 or 0, before or 0
      end
    end
    grant_together()
  end
end

-- at each call
local wants = read_wants(tonumber(ARGV[3]), 4)
CLAIM = new_claim(ARGV[1], wants)
if holds_version > tonumber(ARGV[2]) then return { -1 } end
local heads, keeps = first_queues(CLAIM, keep_keys(wants))
-- An empty pool is what an idle dispatcher meets each second.
CLAIM.empty = #heads == 0 and call('EXISTS', CLAIM.wait) == 0
if not CLAIM.empty then promote_pool(CLAIM) end
answer_all(wants, keeps, grants.known(wants))
if CLAIM.empty then return { now, 0, 1, 0, 0, CLAIM.lanes, CLAIM.answers } end
finish_claim(CLAIM)
finish(false)
local next_at, wait, more = outlook(CLAIM)
local reply = { now, next_at, wait, more, CLAIM.again < INF and CLAIM.again or 0, CLAIM.lanes, CLAIM.answers }
CLAIM = nil -- Redis need not keep the records until the next claim
return reply
