-- Lists of tasks.

-- The sets with the lanes of a queue: of a wide one those where they stand in each pool,
-- which have what waits, and that of lanes with settled tasks.
local function sets_of(q)
  local sets, a = {}, q.part
  while a do
    sets[#sets + 1], sets[#sets + 2], a = key.queue_open(a), key.queue_wait(a), a.next
  end
  sets[#sets + 1] = key.ends(q.name)
  return sets
end

-- Lanes of a queue, by steps of a scan of its sets: "<set>.<cursor>".
local function scan_queue(name, cursor)
  local q, out = queue.get(name), {}
  local sets, i, at = sets_of(q), match(cursor, '^(%d+)%.?(%d*)$')
  i = min(max(tonumber(i), 1), #sets) -- a queue that has become narrow has fewer
  if q.lane and cursor == '0' then out = { 'w' .. q.lane.n, name } end
  local last = i == #sets
  local step = call(last and 'SSCAN' or 'ZSCAN', sets[i], at ~= '' and at or '0', 'COUNT', 50)
  for k = 1, #step[2], last and 1 or 2 do
    local mark, l = last and 'e' or 'w', last and q.wide and queue.lane(q, tonumber(step[2][k]))
    if l and l.pool == '' then mark = '' end -- of a deleted source: what waits stands in no set
    out[#out + 1], out[#out + 2] = mark .. step[2][k], name
  end
  if step[1] ~= '0' then return out, i .. '.' .. step[1] end
  return out, last and '0' or (i + 1) .. '.0'
end

-- Lists lanes of a source or of a queue (dispatch.Tasks.ListTasks).
--
-- ARGV     uid ('' = any), queue ('' = any), cursor ('0' = the first)
-- Returns  next cursor ('0' = the end), and flat of each lane the number of the source and
--          the queue; before the number 'w' where only what waits is to be listed, 'e' where
--          only settled tasks are
-- Cost     O(1); about 50 lanes
-- flags: no-writes
function scripts.lanes()
  local n, name, cursor = '', ARGV[2], ARGV[3]
  if ARGV[1] ~= '' then
    n = source.number(ARGV[1])
    if not n then return { '0' } end
    if name ~= '' then return { '0', n, name } end
    local step, out = call('SSCAN', key.lanes(n), cursor, 'COUNT', 5), {}
    for _, queue_name in ipairs(step[2]) do out[#out + 1], out[#out + 2] = n, queue_name end
    return { step[1], unpack(out) }
  end
  local out
  out, cursor = scan_queue(name, cursor)
  return { cursor, unpack(out) }
end

-- A part of a lane behind an entry, at most limit: 'waiting', 'dead' or 'canceled', flat the
-- ends of the ids, or the ids, and their scores.
local function entries_of(n, queue_name, part, score, after, limit)
  local name, out = n .. ':' .. queue_name, {}
  local set = part == 'dead' and key.dead(name) or part == 'canceled' and key.canceled(name) or key.set(name)
  local l = part == 'waiting' and queue.lane(queue.get(queue_name), n)
  if l then
    for _, e in ipairs(lane.all(l, 1000)) do
      local behind = score == '' or e.score > tonumber(score) or e.score == tonumber(score) and before(after, e.suffix)
      if behind and #out < 2 * limit then out[#out + 1], out[#out + 2] = e.suffix, decimal(e.score) end
    end
  end
  if part == 'waiting' and (not l or l.more == 0) or #out == 2 * limit then return out end
  local rank = lease.rank(set, score, after)
  local found = call('ZRANGE', set, rank, rank + limit - #out / 2 - 1, 'WITHSCORES')
  for i = 1, #found do out[#out + 1] = found[i] end
  return out
end

-- Reads a page of the tasks of a lane (dispatch.Tasks.ListTasks).
--
-- ARGV     source, queue, part: 'waiting', 'dead' or 'canceled'; score and member of the last
--          entry read ('' = none); limit of tasks, limit of bytes (the first task always fits)
-- Returns  now, sources, tasks, their bytes, number of entries read, score and member of the
--          last entry ('' = the end)
-- Cost     O(log n + limit)
-- flags: no-writes
function scripts.list()
  local n, queue_name, score, after, limit, page, looked = tonumber(ARGV[1]), ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6]), reply.page(), 0
  local found, slot = entries_of(n, queue_name, ARGV[3], score, after, limit), queue.get(queue_name).slot
  local ended = #found < 2 * limit
  for i = 1, #found, 2 do
    local id = #found[i] == 26 and slot .. '-' .. found[i] or found[i]
    if not reply.add_to_page(page, id, tonumber(ARGV[7])) then
      ended = false
      break
    end
    looked, after, score = looked + 1, found[i], found[i + 1]
  end
  if ended then score, after = '', '' end
  return { now, page.list.sources, page.list.tasks, page.bytes, looked, score, after }
end

-- Reads the lanes with due tasks, of a source or of a queue (dispatch.Tasks.DueLanes).
--
-- ARGV     uid and queue, of which one is ''; limit of lanes to read, limit of lanes to return
-- Returns  number of lanes, number read, number of those with due tasks; due time and id
--          ('' = none) of the first task in the other lanes that were read; then flat, per
--          returned lane: number of due tasks, id of the first one
-- Cost     O(log n) a lane read
-- flags: no-writes
function scripts.duelanes()
  local n, most, out = '', 5 + 2 * tonumber(ARGV[4]), { 0, 0, 0, 0, '' }
  if ARGV[1] ~= '' then
    n = source.number(ARGV[1])
    if not n then return out end
  end
  local lanes_, next_at, most_lanes = {}, INF, tonumber(ARGV[3])
  if ARGV[2] ~= '' then
    local q = queue.get(ARGV[2])
    for _, one in ipairs(queue.sources(q, most_lanes)) do lanes_[#lanes_ + 1] = { one, q } end
    out[1] = queue.lanes(q)
  else
    local found = call('SSCAN', key.lanes(n), '0', 'COUNT', most_lanes)[2]
    queue.read_all(found)
    for i = 1, min(#found, most_lanes) do lanes_[i] = { n, queue.get(found[i]) } end
    out[1] = call('SCARD', key.lanes(n))
  end
  out[2] = #lanes_
  for _, one in ipairs(lanes_) do
    local q = one[2]
    local l = queue.lane(q, one[1])
    local due, first, at = 0, nil, nil
    if l then due, first, at = lane.due(l) end
    if due > 0 then
      out[3] = out[3] + 1
      if #out < most then out[#out + 1], out[#out + 2] = due, q.slot .. '-' .. first end
    elseif first and at < next_at then
      next_at, out[4], out[5] = at, decimal(at), q.slot .. '-' .. first
    end
  end
  return out
end
