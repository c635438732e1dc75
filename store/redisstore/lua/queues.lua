-- Calls about queues.

local function settings_text(s)
  return concat({ s.delay, s.in_flight, format('%.17g', s.factor), s.max_delay, s.max_block }, ' ')
end

local function describe(name)
  local q = queue.get(name)
  if not q.exists or q.over then return nil end
  gate.opens(q)
  local pools, s = {}, rule.settings(q)
  local a = q.part
  while a do
    if queue.opens(q, a) + queue.waits(q, a) > 0 then pools[#pools + 1] = a.pool end
    a = a.next
  end
  sort(pools, before)
  return { q.name, decimal(q.next_grant), decimal(packed_until(q.held)), decimal(q.block), q.step, decimal(q.began), q.in_flight,
    q.waiting, concat(pools, ','), s.name, settings_text(s), q.asked, q.block > now and call('GET', key.cause(q.name)) or '' }
end

-- Reads queues, by name or by a range of their reversed names (dispatch.Queues.QueuesNamed,
-- ListQueues).
--
-- ARGV     'names' and names; or 'range', min and max (as of ZRANGEBYLEX), limit
-- Returns  now, the last reversed name read ('' = the end), and per existing queue: name,
--          next grant, end of its holds, end of its block, block step, start of the block,
--          in flight, waiting, pools, settings name, settings, the delay that its host
--          asks for, and the cause of its block: the task, a newline and the failure
--          (JSON; '' = not known)
-- Cost     O(log n) a queue
-- flags: no-writes
function scripts.queues()
  local out, last, names = {}, '', {}
  if ARGV[1] == 'names' then
    names = args_from(2)
  else
    local found = call('ZRANGEBYLEX', key.queues, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
    for i, name in ipairs(found) do names[i] = queue.reversed(name) end
    if #found == tonumber(ARGV[4]) then last = found[#found] end
  end
  queue.read_all(names)
  for _, name in ipairs(names) do out[#out + 1] = describe(name) end
  return { now, last, out }
end

-- Ends the block that failures have caused, and the doubling of its length
-- (dispatch.Queues.Unblock).
--
-- ARGV     queue
-- Returns  1, or 0 if there was neither
-- Cost     O(log n)
function scripts.unblock()
  local q = queue.get(ARGV[1])
  local blocked = q.block > now or q.step > 0
  q.block, q.step, q.began, q.dirty, q.touched = 0, 0, 0, true, true
  finish(true)
  return blocked and 1 or 0
end

-- Places a page of the queues anew after a change of rules or holds
-- (dispatch.Queues.SyncRules): those that have tasks that wait, once after each change.
--
-- ARGV     limit; the version of the settings for this pass ('' = not known); the reversed
--          name of the last queue read ('' = none)
-- Returns  version and name for the next page; version '' = the end
-- Cost     O(log n) a queue; at most 100
function scripts.replace()
  local limit, version, last = tonumber(ARGV[1]), ARGV[2], ARGV[3]
  local current = decimal(shard.settings_version())
  if version == '' then
    if call('HGET', key.keeper, 'placed') == current then return { '', '' } end
    version = current
  end
  local found, names = call('ZRANGEBYLEX', key.queues, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, limit), {}
  for i, name in ipairs(found) do names[i] = queue.reversed(name) end
  queue.read_all(names)
  for _, name in ipairs(names) do
    local q = queue.get(name)
    if q.exists and q.waiting > 0 then q.touched = true end
  end
  if #found < limit and version == current then call('HSET', key.keeper, 'placed', version) end
  finish(true)
  if #found < limit then return { '', '' } end
  return { version, found[#found] }
end
