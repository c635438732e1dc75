-- Tasks among the lanes, and how they are handed to Go.
local WAITING = record.WAITING

-- Puts a waiting task that stands nowhere into its lane.
function task.enter(id, r)
  local q, s = queue.get(r.queue), source.get(r.source)
  local l = queue.make_lane(q, r.source)
  local ready, rank = r.due <= now, record.rank(r)
  lane.add(l, ready and rank * BAND + r.due or lane.LATER + r.due * 32 + rank, { record.suffix(id) }, 1)
  source.count(s, ready and 'ready' or 'scheduled', 1)
  q.slot = match(id, '^%d+')
  q.waiting, q.dirty = q.waiting + 1, true
  lane.touch(l)
end

-- Where a waiting task stands: its score in its lane, or true for an orphan, which stands
-- among the leases until its lock has ended; nil for nowhere.
function task.place(id, r)
  local l = queue.lane(queue.get(r.queue), r.source)
  local score = l and lane.score(l, record.suffix(id))
  if score then return score end
  return call('ZSCORE', key.leases, lease.orphan(id, r.source, r.queue)) and true or nil
end

-- Takes a waiting task out of where it stands.
function task.leave(id, r)
  local q, s = queue.get(r.queue), source.get(r.source)
  local l = queue.lane(q, r.source)
  local score = l and lane.remove(l, record.suffix(id))
  if not score then call('ZREM', key.leases, lease.orphan(id, r.source, r.queue)) end
  source.count(s, score and score >= lane.LATER and 'scheduled' or 'ready', -1)
  q.waiting, q.dirty, q.touched = max(q.waiting - 1, 0), true, true
  if l then lane.touch(l) end
end

-- Writes a settled task, and files it.
function task.settle(s, id, r, remember)
  settled.enter(s, id, r, remember)
  source.outstanding(s, r, -1)
end

-- The details that a holder gets.
local function holder_details(id)
  local f = call('HMGET', key.details(id), 'c', 'm')
  return { 'c', f[1] or '', 'm', f[2] or '' }
end
reply.holder_details = holder_details

-- What is asked for of a task besides its record: nothing, what a holder gets, its history
-- alone, or all.
reply.NOTHING, reply.HOLDER, reply.HISTORY, reply.ALL = 0, 1, 2, 3

-- Begins a list of tasks for Go: the sources, number and gate each, and the tasks, which are the
-- end of the id and the record each, and a list where more of it was asked for and is
-- there: fields of its details, and 'h' with its history.
function reply.new() return { sources = {}, tasks = {}, told = {} } end

function reply.add_source(out, s)
  if out.told[s.n] then return end
  local n, list = #out.sources, out.sources
  out.told[s.n] = true
  list[n + 1], list[n + 2] = s.n, s.gate or ''
end

local function more_of(id, r, s, with)
  local more
  if r.details and with == reply.HOLDER then more = holder_details(id)
  elseif r.details and with == reply.ALL then more = call('HGETALL', key.details(id)) end
  local function add(field, value)
    more = more or {}
    more[#more + 1], more[#more + 2] = field, value
  end
  if r.history and with >= reply.HISTORY then add('h', call('GET', key.history(id)) or '') end
  if with < reply.ALL then return more end
  local stray = r.state == WAITING and lock.of(id, r)
  if stray then add('l', stray) end
  local why = s.deleted and call('HGET', key.drop(s.n), 'why')
  if why then add('x', why) end
  return more
end

-- Adds a task to a list; returns about how many bytes it takes there.
function reply.add(out, id, raw, r, with)
  local s = source.get(r.source)
  reply.add_source(out, s)
  local n, tasks, more = #out.tasks, out.tasks, nil
  if with > reply.NOTHING then more = more_of(id, r, s, with) end
  tasks[n + 1], tasks[n + 2] = record.suffix(id), raw
  if more then tasks[n + 3] = more end
end

-- A page of tasks that is bounded in bytes; LISTED is about what a task takes without its
-- texts.
local LISTED = 512
function reply.page() return { list = reply.new(), bytes = 0, n = 0 } end

-- Adds a task to the page, if there is one; false if the page would have more than limit
-- bytes. The first always fits.
function reply.add_to_page(page, id, limit)
  local raw = call('GET', key.task(id))
  local r = record.read(raw)
  if not r then return true end
  local n = LISTED + #raw + r.core + (r.history and call('STRLEN', key.history(id)) or 0)
  if page.n > 0 and page.bytes + n > limit then return false end
  reply.add(page.list, id, raw, r, reply.HISTORY)
  page.n, page.bytes = page.n + 1, page.bytes + n
  return true
end

-- Reads tasks by id.
--
-- ARGV     whether with details (0, 1), ids
-- Returns  now, sources, tasks; and per id whether there is one, a byte each
-- Cost     O(1) a task
-- flags: no-writes
function scripts.read()
  local out, with, met, keys = reply.new(), ARGV[1] == '1' and reply.ALL or reply.NOTHING, {}, {}
  for i = 2, #ARGV do keys[i - 1] = key.task(ARGV[i]) end
  for i, raw in ipairs(call('MGET', unpack(keys))) do
    local r = record.read(raw)
    if r then reply.add(out, ARGV[i + 1], raw, r, with) end
    met[i] = r and '\1' or '\0'
  end
  return { now, out.sources, out.tasks, concat(met) }
end
