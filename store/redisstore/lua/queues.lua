-- Reads queues, by name or by a range of their reversed names
-- (dispatch.Queues.QueuesNamed, ListQueues).
--
-- KEYS[1]  the shard key
-- ARGV     'names' and names; or 'range', min and max (as of ZRANGEBYLEX), limit
-- Returns  now, the last reversed name read ('' = the end), and per existing queue: name,
--          next grant, end of its holds, end of its block, block step, start of the block,
--          in flight, waiting, pools, settings name, settings, the delay that its host
--          asks for, and the cause of its block: the task, a newline and the failure
--          (JSON; '' = not known)
-- Cost     O(log n) a queue
local function settings_text(s)
  return table.concat({ s.delay, s.in_flight, string.format('%.17g', s.factor), s.max_delay, s.max_block }, ' ')
end

local function describe(name)
  local q = get_queue(name)
  if not q.exists then return nil end
  queue_gate(q)
  local pools, s = {}, settings_of(q)
  local a = q.part
  while a do
    if a.held then pools[#pools + 1] = a.pool end
    a = a.next
  end
  table.sort(pools, before)
  return { q.name, decimal(q.next_grant), decimal(min(q.held, FOREVER)), decimal(q.block), q.step, decimal(q.began), q.in_flight,
    q.waiting, table.concat(pools, ','), s.name, settings_text(s), q.asked, q.block > now and call('GET', queue_cause_key(q.name)) or '' }
end

local out, last = {}, ''
if ARGV[1] == 'names' then
  for i = 2, #ARGV do out[#out + 1] = describe(ARGV[i]) end
else
  local found = call('ZRANGEBYLEX', QUEUES, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
  for _, name in ipairs(found) do out[#out + 1] = describe(reversed(name)) end
  if #found == tonumber(ARGV[4]) then last = found[#found] end
end
return { now, last, out }
