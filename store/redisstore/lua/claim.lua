-- Claims: wants, in lines, take turns of queues.
claim.MOST_TURNS = 100 -- dispatch.MaxClaimTurns

-- Max, max bytes, lease in ms, numbers of sources and of queues, the holder's digest,
-- collector, session, client token, call (claim.go).
local WANT = '>I2I4I6BBc8Bc0Bc0Bc0Bc0'

-- What a want asks for, at the i-th argument, and where the next one is.
local function read_want(i)
  local most, max_bytes, lease_, sources, queues, holder, by, session, token_, call_ = parse(WANT, ARGV[i])
  local w = {
    collector = by, session = session, call = call_, token = token_, holder = holder, holder_name = by .. '/' .. token_,
    token_prefix = by .. '/' .. token_ .. '/',
    max = most, max_bytes = max_bytes, lease = lease_, ids = {}, slot = false, turns = false, bytes = 0, fence = 0, answer = 0,
    terms = false, ended = false, begin = false, numbers = false, queues = false,
  }
  if sources > 0 then
    w.numbers = {}
    for k = 1, sources do w.numbers[#w.numbers + 1] = source.number(ARGV[i + k]) end
  end
  if queues > 0 then w.queues = { unpack(ARGV, i + sources + 1, i + sources + queues) } end
  return w, i + 1 + sources + queues
end

-- Wants that follow each other and take anything of the pool are a line: a turn of a queue
-- goes on from one to the next. One that names queues or sources is a line of its own.

-- Continues with the next want and begins its answer; nil if there is none. room is what
-- they have together.
local function go_on(C, h)
  local w = h.want
  if w then h.room = h.room - w.max + #w.ids end
  h.at = h.at + 1
  w = h.wants[h.at]
  h.want = w
  if w then
    local n = #C.answers
    C.answers[n + 1], C.answers[n + 2], w.answer = 0, 0, n + 1
  end
  return w
end

-- The want to give a task to: one that has room.
function claim.open_want(C, h)
  local w = h.want
  if w and #w.ids == w.max then return go_on(C, h) end
  return w
end

-- Notes a turn that began with the first-th want, which had so many tasks then.
function claim.note_turn(h, first, had, q, from)
  for i = first, h.at do
    local w = h.wants[i]
    local n = w and #w.ids - had or 0
    if n > 0 then
      w.turns = w.turns or {}
      w.turns[#w.turns + 1] = grant.pack_turn(q.name, from, q.next_grant, had + 1, n)
    end
    had = 0
  end
end

local function bound(C) return C.looks >= claim.MOST_TURNS or C.granted >= 100 or C.misses >= 100 end

-- Gives turns to the queues that a want names, ascending.
local function serve_queues(C, h)
  local w, names, seen = h.want, {}, {}
  for _, name in ipairs(w.queues) do
    if not seen[name] then seen[name], names[#names + 1] = true, name end
  end
  sort(names, before)
  for _, name in ipairs(names) do
    local q = queue.get(name)
    local a = queue.part(q, C.pool)
    while not w.ended and h.room > 0 do
      if bound(C) then
        C.left = true
        return
      end
      if queue.opens(q, a) + queue.waits(q, a) == 0 then break end
      if claim.turn(C, h, q) == 0 then
        local at = claim.again_at(w, q, a)
        C.again, C.left = min(C.again, at), C.left or at <= now -- more was due than is promoted at once
        break
      end
    end
  end
end

-- Gives the queues of the pool their turns.
local function serve(C, h)
  while claim.open_want(C, h) do
    if h.want.ended then go_on(C, h)
    elseif bound(C) then
      C.stopped = true
      return
    elseif not polite.serve(C, h) then
      local q = claim.pick()
      if not q then return end
      claim.turn(C, h, q)
    end
  end
end

-- Grants to a line, and notes what each want was granted.
local function serve_line(C, wants)
  local h = { wants = wants, want = false, at = 0, room = 0, asks = 0 }
  for _, w in ipairs(wants) do h.room = h.room + w.max end
  h.asks = min(h.room, 100)
  go_on(C, h)
  if C.empty then -- nothing is looked at
  elseif h.want.queues then serve_queues(C, h)
  elseif h.want.numbers then claim.serve_sources(C, h, bound)
  else serve(C, h) end
  while h.want do go_on(C, h) end
  for _, w in ipairs(wants) do
    if #w.ids > 0 then
      grant.note(w, #w.ids == 1 and w.ids[1] or concat(w.ids, ' '))
      C.answers[w.answer], C.answers[w.answer + 1] = 1, #w.ids
    end
  end
end

local function answer_again(C, w, found)
  flush_writes()
  local out = { sources = C.out.sources, told = C.out.told, tasks = {} }
  grant.replay(out, w, found)
  local n = #C.answers
  C.answers[n + 1], C.answers[n + 2] = 1, out.tasks
end

-- Answers the wants in their order, given the values of their keys and what is known of
-- their client tokens. Of those, asked has the line in which they were last.
local function answer_all(C, wants, keeps, tokens)
  local together, asked = {}, {}
  local function serve_together()
    if #together > 0 then serve_line(C, together) end
    together = {}
  end
  for i, w in ipairs(wants) do
    local found, replaced, again, alone = tokens[i], keeps[i] and keeps[i] ~= w.session, asked[w.holder_name], w.queues or w.numbers
    if again == together or replaced or alone then serve_together() end
    if again and not replaced then found = grant.find(w.collector, w.token) end -- it may have been granted something now
    if replaced then
      C.answers[#C.answers + 1], C.answers[#C.answers + 2] = 0, 0
    elseif found then
      serve_together()
      answer_again(C, w, found)
    else
      together[#together + 1], asked[w.holder_name] = w, together
      if alone then serve_together() end
    end
  end
  serve_together()
end

-- Grants tasks of a pool to wants (dispatch.Claims.Claim), in the order of
-- dispatch/scheduling.md.
--
-- ARGV     pool, the version of the holds applied to the wants, number of wants; per
--          want: its packed fields (WANT; max bytes 0 = no limit, lease 0 = the
--          source's), its sources, its queues
-- Returns  -1 if the shard has later holds. Else now, next (0 = never), wait reason,
--          more, again (0 = not known); the sources; then flat, per want: whether its
--          client token was used, and for a new grant the number of its tasks and each
--          task, for a repeat a list of the tasks that are still held
-- Cost     O(log n) a task and a turn; at most 100 tasks, 100 turns, 100 queues promoted;
--          for wants that name sources 100 lanes promoted and 200 listed
function scripts.claim()
  local wants, keys, i = {}, {}, 4
  for k = 1, tonumber(ARGV[3]) do
    wants[k], i = read_want(i)
    keys[k] = key.keep(wants[k].collector)
  end
  local C = claim.new(ARGV[1], wants)
  for _, w in ipairs(wants) do w.out = C.out end
  keys[#wants + 1] = key.picks(C.pool)
  local due = claim.due()
  -- Where nothing is promoted, the first queues are read with what all claims read.
  local names = due[1] and {} or claim.first_names()
  for k = 1, #names do keys[#wants + 1 + k] = key.queue(names[k]) end
  local keeps = shard.read(keys)
  if shard.holds > tonumber(ARGV[2]) then return { -1 } end
  C.fence, C.picks = shard.counts().fence, tonumber(keeps[#wants + 1] or 0)
  for k = 1, #names do queue.offer(names[k], keeps[#wants + 1 + k]) end
  claim.promote(due)
  -- An empty pool is what an idle dispatcher meets each second.
  if not claim.heads() and call('EXISTS', C.wait) == 0 then
    local held, full, later = pool.closed(C.pool)
    C.empty = held + full + later == 0
  end
  answer_all(C, wants, keeps, grant.known(wants))
  if C.picked or C.granted > 0 then
    write(key.picks(C.pool), decimal(C.picks))
    shard.tally('fence', C.fence - shard.counts().fence)
  end
  shard.tally('ready', -C.ready)
  shard.tally('leased', C.ready)
  shard.tally('granted', C.granted)
  shard.tally('orphaned', C.orphaned)
  shard.tally('dropped', C.dropped)
  call_for_all('ZADD', key.leases, C.leases)
  finish(false)
  local next_at, wait, more = claim.outlook()
  return { now, next_at, wait, more, C.again < INF and C.again or 0, C.out.sources, C.answers }
end
