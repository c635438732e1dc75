-- Settled tasks that are kept, and what tells of lanes that have nothing else: dead and
-- canceled tasks stand in sets of their lane, by when they are forgotten; a done one is only
-- its record.
local FIELD = { [4] = 'done', [5] = 'dead', [6] = 'canceled' }
settled.FORGET_LIMIT = 100
settled.MAX_REMEMBER = 400 * DAY -- dispatch.MaxRemember

-- Queues by source, to be listed there; lanes to be listed no more, flat: source and queue.
local listed, unlisted

function settled.begin() listed, unlisted = {}, {} end

-- Lists a lane among those of its source, and takes one out that has nothing that waits.
function settled.list(l)
  add_to(listed, l.n, l.q.name)
end
function settled.unlist(n, queue_name) unlisted[#unlisted + 1], unlisted[#unlisted + 2] = n, queue_name end

-- Writes what was listed. A lane with dead or canceled tasks stays listed.
function settled.save()
  if unlisted[1] then
    local lanes, names, gone = {}, {}, {}
    for i = 1, #unlisted, 2 do
      local n, queue_name = unlisted[i], unlisted[i + 1]
      if source.kept(n) == 0 then -- none of its lanes has such tasks
        add_to(gone, n, queue_name)
      else
        lanes[#lanes + 1], names[#names + 1] = i, text_of(n) .. ':' .. queue_name
      end
    end
    for i = 1, #names, 1000 do
      local kept = call('SMISMEMBER', key.kept, unpack(names, i, min(i + 999, #names)))
      for k = 1, #kept do
        local at = lanes[i + k - 1]
        if kept[k] == 0 then add_to(gone, unlisted[at], unlisted[at + 1]) end
      end
    end
    for n, queues in pairs(gone) do call_for_all('SREM', key.lanes(n), queues) end
    unlisted = {}
  end
  for n, queues in pairs(listed) do call_for_all('SADD', key.lanes(n), queues) end
  listed = {}
end

local function name_of(r) return r.source .. ':' .. r.queue end

-- Writes and files a settled task of source s. remember is in ms, 0 = with its source.
function settled.enter(s, id, r, remember)
  source.count(s, FIELD[r.state], 1)
  local gone = remember > 0 and now + remember or INF
  if remember == 0 then
    record.write(id, r)
  else
    call('SET', key.task(id), record.pack(r), 'PXAT', decimal(gone - 1))
    if r.details then expire_at(key.details(id), gone) end
    if r.history then expire_at(key.history(id), gone) end
  end
  if r.state == record.DONE and remember > 0 then return end
  local name = name_of(r)
  local set = r.state == record.DEAD and key.dead(name) or key.canceled(name)
  call('ZADD', set, gone, id)
  if call('SADD', key.kept, name) == 1 then
    source.tally(s, 'kept', 1)
    call('SADD', key.ends(r.queue), r.source)
    call('SADD', key.lanes(r.source), r.queue)
  end
  if remember > 0 then call('ZADD', key.forget, 'LT', gone, set) end
end

-- Takes a settled task out of the tasks to forget.
function settled.leave(s, id, r)
  source.count(s, FIELD[r.state], -1)
  local name = name_of(r)
  if call('ZREM', r.state == record.DEAD and key.dead(name) or key.canceled(name), id) == 1 then settled.trim(r.source, r.queue) end
  if r.details then call('PERSIST', key.details(id)) end
  if r.history then call('PERSIST', key.history(id)) end
end

-- Takes a lane off the lists when it has no dead or canceled tasks any more; the source of
-- the last lane ends when what may still name it is forgotten.
function settled.trim(n, queue_name)
  local name = n .. ':' .. queue_name
  if call('EXISTS', key.dead(name), key.canceled(name)) > 0 then return end
  source.tally(source.get(n), 'kept', -call('SREM', key.kept, name))
  local q = queue.get(queue_name)
  local l = queue.lane(q, n)
  local empty = not l or lane.is_empty(l)
  if empty or not source.get(n).deleted then call('SREM', key.ends(queue_name), n) end
  if not empty then return end
  if l and not q.wide then
    place.lane(l, false)
    q.lane, q.dirty = false, true
  end
  call('SREM', key.lanes(n), queue_name)
  local s = source.get(n)
  if s.deleted and s.gate and call('EXISTS', key.lanes(n)) == 0 then source.forget_in(s, settled.MAX_REMEMBER) end
end

-- Forgets at most limit of a set of dead or canceled tasks whose time is over. The bodies
-- are gone by then: they were given the same end.
function settled.forget(set, limit)
  local kind, n, queue_name = match(set, ':(l[cd]):(%d+):(.*)$')
  local over = call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, limit)
  if #over > 0 then
    n = tonumber(n)
    call('ZREM', set, unpack(over))
    source.count(source.get(n), kind == 'ld' and 'dead' or 'canceled', -#over)
    settled.trim(n, queue_name)
  end
  return #over
end

function settled.forget_due()
  local left = settled.FORGET_LIMIT
  for _, set in ipairs(call('ZRANGEBYSCORE', key.forget, '-inf', now, 'LIMIT', 0, settled.FORGET_LIMIT)) do
    local n = match(set, ':src:(%d+)$')
    if left == 0 then return end
    if n then source.forget_fields(n) else left = left - settled.forget(set, left) end
    local first = n and {} or call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if first[1] and tonumber(first[2]) < INF then call('ZADD', key.forget, first[2], set) else call('ZREM', key.forget, set) end
  end
end
