-- Lists of tasks.

-- The lanes of a source or of a queue, each as source and queue: some of them from a cursor
-- on, and the next cursor, '0' at the end.
local function lanes_of(n, queue_name, cursor, count)
  if n ~= '' and queue_name ~= '' then return { tonumber(n), queue_name }, '0' end
  local out = {}
  if queue_name == '' then
    local step = call('SSCAN', key.lanes(n), cursor, 'COUNT', count)
    for _, name in ipairs(step[2]) do out[#out + 1], out[#out + 2] = tonumber(n), name end
    return out, step[1]
  end
  local met = {}
  local function add(list)
    for _, one in ipairs(list) do
      one = tonumber(one)
      if not met[one] then met[one], out[#out + 1], out[#out + 2] = true, one, queue_name end
    end
  end
  add(queue.sources(queue.get(queue_name)))
  add(call('SMEMBERS', key.ends(queue_name)))
  return out, '0'
end

-- Lists lanes of a source or of a queue (dispatch.Tasks.ListTasks).
--
-- ARGV     uid ('' = any), queue ('' = any), cursor ('0' = the first)
-- Returns  next cursor ('0' = the end), and flat the number of the source and the queue of
--          each lane
-- Cost     O(lanes): of a queue all of them
-- flags: no-writes
function scripts.lanes()
  local n = ''
  if ARGV[1] ~= '' then
    n = source.number(ARGV[1])
    if not n then return { '0' } end
  end
  local found, cursor = lanes_of(n, ARGV[2], ARGV[3], 50)
  return { cursor, unpack(found) }
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
  local lanes_, next_at = lanes_of(n, ARGV[2], '0', ARGV[3]), INF
  local read = min(#lanes_ / 2, tonumber(ARGV[3]))
  out[1], out[2] = ARGV[2] == '' and call('SCARD', key.lanes(n)) or #lanes_ / 2, read
  for i = 1, 2 * read, 2 do
    local q = queue.get(lanes_[i + 1])
    local l = queue.lane(q, lanes_[i])
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
