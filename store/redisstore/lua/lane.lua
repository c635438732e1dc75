-- A lane: the tasks of one source in one queue that wait. Its first tasks, the head, stand
-- in the value of the queue, or of the lane where the queue has several; the others in a
-- set. Each task of the head is before all of the set, and in its order.
local ENTRY, HEAD = 33, 4 -- bytes of a task in the head; and how many stand there
local ENTRY_FORMAT = '>I7c26'
local OPEN, WAIT = 1, 2
lane.ENTRY, lane.HEAD, lane.OPEN = ENTRY, HEAD, OPEN
-- Of a lane that has a value of its own: pool, where it stands and its score, first due of
-- the set (0 = none), tasks in it.
lane.FORMAT = '>Bc0BI7I7I4'

-- Ready tasks come first, by rank * BAND + due; those that are due later behind them, by
-- LATER + due * 32 + rank.
lane.LATER = 562949953421312 -- 2^49
local LATER = lane.LATER
local LATER_TEXT = '562949953421312'

-- The source's number n, the name "<source>:<queue>", where it stands in its queue (open:
-- score, wait: instant, false = not there) and in which pool ('' = none); list has the
-- head's tasks from the position at on.
local DEFAULTS = { pool = '', open = false, wait = false, later = 0, more = 0, list = '', at = 1, dirty = false, touched = false,
  stored = false, comes = false }
DEFAULTS.__index = DEFAULTS
function lane.new(q, n) return setmetatable({ q = q, n = n, name = text_of(n) .. ':' .. q.name }, DEFAULTS) end

-- Makes a lane of what is packed of it, in a pool.
function lane.lay(q, n, pool_name, stands, score, later, more, head)
  return setmetatable({
    q = q, n = n, name = text_of(n) .. ':' .. q.name, pool = stands > 0 and pool_name or '', open = stands == OPEN and score, later = later,
    wait = stands == WAIT and until_(score), more = more, list = head, at = 1, dirty = false,
  }, DEFAULTS)
end

-- What is packed of a lane: where it stands and its score, first due of the set, tasks in
-- it, and what the caller adds; and the head.
function lane.packed(l, ...)
  if l.open then return OPEN, l.open, l.later, l.more, ... end
  if l.wait then return WAIT, packed_until(l.wait), l.later, l.more, ... end
  return 0, 0, l.later, l.more, ...
end
function lane.head(l) return l.at > 1 and sub(l.list, l.at) or l.list end

local function head_size(l) return (#l.list - l.at + 1) / ENTRY end
function lane.is_empty(l) return l.more == 0 and #l.list < l.at end
function lane.size(l) return l.more + head_size(l) end

-- Notes what the set has first of the tasks that are due later.
local function read_later(l)
  l.later = 0
  if l.more <= 0 then return end
  local score = call('ZRANGEBYSCORE', key.set(l.name), LATER_TEXT, '+inf', 'LIMIT', '0', '1', 'WITHSCORES')[2]
  if score then l.later = tonumber(score) - LATER end
end

-- Takes in what a set still has of a queue whose value was lost.
function lane.find_set(l)
  l.more = call('ZCARD', key.set(l.name))
  l.q.waiting = l.q.waiting + l.more
  read_later(l)
end

-- Takes the n first tasks of a set that has so many (more): those as a head has them, how
-- many are left, and the last score.
local function pop(name, n, more)
  local found, entries, last = call('ZPOPMIN', key.set(name), n), {}, 0
  for i = 1, #found, 2 do
    last = tonumber(found[i + 1])
    entries[#entries + 1] = pack(ENTRY_FORMAT, last, found[i])
  end
  return concat(entries), #found < 2 * n and 0 or max(more - n, 0), last
end

-- Takes the first tasks of a set, all of which are ready, for a head: that, and how many are
-- left.
function lane.next_head(name, more) return pop(name, HEAD, more) end

-- Brings tasks of the set to the head, so that it has n of them; to an empty one as many as
-- a head has.
function lane.load(l, n)
  lane.flush(l)
  local missing = max(n, HEAD) - head_size(l)
  if n <= head_size(l) or l.more <= 0 then return end
  local came, left, last = pop(l.name, missing, l.more)
  l.list, l.at, l.more, l.dirty, l.q.dirty = sub(l.list, l.at) .. came, 1, left, true, true
  if l.more == 0 then l.later = 0 elseif last >= LATER then read_later(l) end
end

-- The i-th task of the head, from 0: its score and the end of its id.
local function entry(l, i) return parse(ENTRY_FORMAT, l.list, l.at + ENTRY * i) end

-- The score of the task at a position of the head.
local function score_at(l, at) return (parse('>I7', l.list, at)) end

-- The score of the first task of the lane; nil for none.
local function first_score(l)
  if #l.list < l.at then lane.load(l, 1) end
  return #l.list >= l.at and score_at(l, l.at) or nil
end

-- The first tasks that are ready and share a band, that of the first if none is given, at
-- most n: the ends of their ids; and that band. Those behind the head stay in the set.
function lane.alike(l, n, s, band)
  local suffixes, score = {}, first_score(l)
  local rank = score and score < LATER and floor(score / BAND)
  band = band or rank and lane.band(s, rank)
  if not rank or lane.band(s, rank) ~= band then return suffixes, band end
  while rank < 20 and lane.band(s, rank + 1) == band do rank = rank + 1 end
  local ends, list, at, size = min((rank + 1) * BAND, LATER), l.list, l.at, 0
  while size < n and at <= #list do
    score, suffixes[size + 1] = parse(ENTRY_FORMAT, list, at)
    if score >= ends then
      suffixes[size + 1] = nil
      return suffixes, band
    end
    size, at = size + 1, at + ENTRY
  end
  if size < n then lane.flush(l) end
  if size == n or l.more <= 0 then return suffixes, band end
  local found = call('ZRANGEBYSCORE', key.set(l.name), '-inf', '(' .. decimal(ends), 'LIMIT', '0', n - size)
  for i = 1, #found do suffixes[size + i] = found[i] end
  return suffixes, band
end

-- Takes the n first tasks off.
function lane.take(l, n)
  local behind = n - head_size(l)
  if behind > 0 then
    l.more = max(l.more - call('ZREMRANGEBYRANK', key.set(l.name), '0', behind - 1), 0)
    n = n - behind
  end
  l.at, l.dirty, l.q.dirty = l.at + n * ENTRY, true, true
end

-- The first tasks of the head, whatever they wait for.
function lane.all(l, n)
  local all = {}
  for i = 0, min(n, head_size(l)) - 1 do
    local score, suffix = entry(l, i)
    all[i + 1] = { score = score, suffix = suffix }
  end
  return all
end

-- The rank of the first ready task, and the score of the first that is due later, less
-- LATER; false for none.
function lane.front(l)
  local score = first_score(l)
  if not score then return false, false end
  local rank, at = score < LATER and floor(score / BAND), l.at
  if score_at(l, #l.list - ENTRY + 1) < LATER then return rank, l.later > 0 and l.later end
  while score < LATER do
    at = at + ENTRY
    score = score_at(l, at)
  end
  return rank, score - LATER
end

-- Puts a task into the head at its place; false if it belongs into the set, and whether it
-- has a higher score than all of the head.
local function enter_head(l, score, suffix)
  local n, at, other, its = head_size(l), #l.list + 1, nil, nil
  while at > l.at do
    other, its = parse(ENTRY_FORMAT, l.list, at - ENTRY)
    if other < score or other == score and before(its, suffix) then break end
    at = at - ENTRY
  end
  local last = at > #l.list
  if last and (n >= HEAD or l.more > 0 or l.comes) then return false, n > 0 and other < score end
  l.list = sub(l.list, l.at, at - 1) .. pack(ENTRY_FORMAT, score, suffix) .. (last and '' or sub(l.list, at))
  l.at = 1
  return true
end

-- Notes tasks of one score that come to the set, those of a list from a position on; flush
-- writes them.
local function enter_set(l, score, suffixes, from)
  local comes, text = l.comes or {}, text_of(score)
  local n = #comes
  for i = from, #suffixes do comes[n + 1], comes[n + 2], n = text, suffixes[i], n + 2 end
  l.comes = comes
  if score >= LATER and (l.later == 0 or score - LATER < l.later) then l.later = score - LATER end
end

-- A task whose record was lost stood there already: it counts no more.
function lane.drop_lost(l, score)
  local s = source.get(l.n)
  source.count(s, score < LATER and 'ready' or 'scheduled', -1)
  shard.tally('dropped', 1)
  l.q.waiting = l.q.waiting - 1
end

-- Writes the tasks that come to the set.
function lane.flush(l)
  local comes = l.comes
  if not comes then return end
  local set, came = key.set(l.name), 0
  for i = 1, #comes, 1000 do came = came + call('ZADD', set, 'NX', unpack(comes, i, min(i + 999, #comes))) end
  l.more, l.comes = l.more + came, false
  if came == #comes / 2 then return end
  for i = 1, #comes, 2 do
    local score = call('ZSCORE', set, comes[i + 1])
    if score ~= comes[i] then
      lane.drop_lost(l, tonumber(score))
      call('ZADD', set, comes[i], comes[i + 1])
      came = came + 1
    end
  end
  for _ = came + 1, #comes / 2 do lane.drop_lost(l, tonumber(comes[1])) end
  read_later(l)
end

local function is_coming(l, suffix)
  for i = 2, l.comes and #l.comes or 0, 2 do
    if l.comes[i] == suffix then return true end
  end
  return false
end

-- Leaves no task in the set that came to the head, and no more in the head than stand there.
local function make_room(l, suffix)
  if is_coming(l, suffix) then lane.flush(l) end
  local old = l.more > 0 and call('ZSCORE', key.set(l.name), suffix)
  if old then -- its record was lost
    lane.flush(l)
    call('ZREM', key.set(l.name), suffix)
    l.more = l.more - 1
    lane.drop_lost(l, tonumber(old))
    read_later(l)
  end
  if head_size(l) > HEAD then
    local last, its = parse(ENTRY_FORMAT, l.list, #l.list - ENTRY + 1)
    l.list = sub(l.list, 1, #l.list - ENTRY)
    enter_set(l, last, { its }, 1)
  end
end

-- Adds tasks of one score that stand nowhere in the lane, those of a list from a position on.
function lane.add(l, score, suffixes, from)
  if #l.list < l.at then lane.load(l, 1) end
  l.dirty, l.q.dirty = true, true
  local list, begin = l.list, l.at
  for i = from, #suffixes do
    local at = find(list, suffixes[i], begin, true)
    if at then -- its record was lost
      lane.drop_lost(l, score_at(l, at - 7))
      list, begin = sub(list, begin, at - 8) .. sub(list, at + ENTRY - 7), 1
      l.list, l.at = list, begin
    end
  end
  for i = from, #suffixes do
    local entered, behind = enter_head(l, score, suffixes[i])
    if behind then return enter_set(l, score, suffixes, i) end -- as those that follow
    if entered then make_room(l, suffixes[i]) else enter_set(l, score, { suffixes[i] }, 1) end
  end
end

-- The score of a task of the lane, and its place in the head; nil for none.
local function find_task(l, suffix)
  for at = l.at, #l.list, ENTRY do
    local score, its = parse(ENTRY_FORMAT, l.list, at)
    if its == suffix then return score, at end
  end
  lane.flush(l)
  local score = l.more > 0 and call('ZSCORE', key.set(l.name), suffix)
  return score and tonumber(score) or nil
end
function lane.score(l, suffix) return (find_task(l, suffix)) end

-- Takes a task out of the lane; gives its score, nil if it is not there.
function lane.remove(l, suffix)
  local score, at = find_task(l, suffix)
  if not score then return nil end
  l.dirty, l.q.dirty = true, true
  if at then
    l.list, l.at = sub(l.list, l.at, at - 1) .. sub(l.list, at + ENTRY), 1
  else
    call('ZREM', key.set(l.name), suffix)
    l.more = l.more - 1
    if score >= LATER then read_later(l) end
  end
  return score
end

-- Moves tasks that are due from behind to the ready ones, at most so many; returns how many.
function lane.promote(l, most)
  local due, moved = LATER + now * 32 + 31, {}
  local from, i = nil, 0
  for at = l.at, #l.list, ENTRY do
    local score, suffix = parse(ENTRY_FORMAT, l.list, at)
    if score > due or #moved >= 2 * most then break end
    if score >= LATER then
      from = from or at
      moved[#moved + 1], moved[#moved + 2], i = score, suffix, at + ENTRY
    end
  end
  if from then l.list, l.at = sub(l.list, l.at, from - 1) .. sub(l.list, i), 1 end
  lane.flush(l)
  local left = most - #moved / 2
  if l.later > 0 and LATER + l.later <= due and left > 0 then
    local set = key.set(l.name)
    local found, gone = call('ZRANGEBYSCORE', set, LATER_TEXT, decimal(due), 'LIMIT', 0, left, 'WITHSCORES'), {}
    for k = 1, #found, 2 do
      gone[#gone + 1], moved[#moved + 1], moved[#moved + 2] = found[k], tonumber(found[k + 1]), found[k]
    end
    call_for_all('ZREM', set, gone)
    l.more = max(l.more - #gone, 0)
    read_later(l)
  end
  for k = 1, #moved, 2 do
    local later = moved[k] - LATER
    lane.add(l, later % 32 * BAND + floor(later / 32), { moved[k + 1] }, 1)
  end
  if moved[1] then l.dirty, l.q.dirty = true, true end
  return #moved / 2
end

-- Leaves no more in the head than stands there, and writes what comes to the set.
function lane.settle(l)
  local n = head_size(l)
  for i = HEAD, n - 1 do
    local score, suffix = entry(l, i)
    enter_set(l, score, { suffix }, 1)
  end
  if n > HEAD then l.list, l.at = sub(l.list, l.at, l.at + HEAD * ENTRY - 1), 1 end
  lane.flush(l)
end

-- The priority of a lane whose first task has that rank; and its band in queue open.
function lane.priority(s, rank) return max(0, min(9, s.priority + 4 - floor(rank / 2))) end
function lane.band(s, rank) return rank >= 20 and 10 or 9 - lane.priority(s, rank) end

-- How many tasks of the lane are due, without changing it; its first, and when that is due.
function lane.due(l)
  local ends, n, first, at = LATER + now * 32 + 32, 0, nil, nil
  for i = 0, head_size(l) - 1 do
    local score, suffix = entry(l, i)
    if not first then first, at = suffix, score < LATER and score % BAND or floor((score - LATER) / 32) end
    if score < ends then n = n + 1 end
  end
  if l.more > 0 then
    local set = key.set(l.name)
    n = n + call('ZCOUNT', set, '-inf', '(' .. decimal(ends))
    if not first then
      local m = call('ZRANGE', set, '0', '0', 'WITHSCORES')
      local score = tonumber(m[2] or nil)
      if score then first, at = m[1], score < LATER and score % BAND or floor((score - LATER) / 32) end
    end
  end
  return n, first, at
end
