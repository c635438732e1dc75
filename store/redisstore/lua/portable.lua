-- What a copy of a store reads and writes that no other call does (dispatch.Portable). No
-- dispatcher uses the store meanwhile.

-- The lock of a task that is taken in, until it ends; 0 = never.
local function set_lock(id, value, ends)
  if value == '' or ends > 0 and ends <= now then return end
  if ends == 0 then call('SET', key.lock(id), value) else call('SET', key.lock(id), value, 'PXAT', decimal(ends)) end
end

local function take_lease(id, r, s, session)
  local q = queue.get(r.queue)
  call('ZADD', key.leases, decimal(r.deadline), lease.member(id, r.source, r.queue))
  source.count(s, 'leased', 1)
  source.outstanding(s, r, 1)
  q.slot, q.in_flight, q.dirty, q.touched = match(id, '^%d+'), q.in_flight + 1, true, true
  grant.join(id, r, session)
end

-- Takes in tasks, except those that are there, whose source is not known, or that are to be
-- forgotten by now.
--
-- ARGV     per task: id, uid of its source, record with the source 0, when it
--          is forgotten in ms (0 = with its source), cursor, memo, history, session, its lock
--          and when that ends in ms (0 = never)
-- Returns  how many were taken in
-- Cost     O(log n) a task, O(1) a task of its grant; at most 100
-- flags: none
function scripts.importtasks()
  local taken = 0
  for i = 1, #ARGV, 10 do
    local id, n, gone = ARGV[i], source.number(ARGV[i + 1]), tonumber(ARGV[i + 3])
    if n and (gone == 0 or gone > now) and call('EXISTS', key.task(id)) == 0 then
      local r, s = record.read(ARGV[i + 2]), source.get(n)
      r.source = n
      if s.deleted then source.forget_in(s, settled.MAX_REMEMBER) end -- its task names it
      if ARGV[i + 4] ~= '' then call('HSET', key.details(id), 'c', ARGV[i + 4]) end
      if ARGV[i + 5] ~= '' then call('HSET', key.details(id), 'm', ARGV[i + 5]) end
      if ARGV[i + 6] ~= '' then call('SET', key.history(id), ARGV[i + 6]) end
      if r.state >= record.DONE then
        settled.enter(s, id, r, gone > 0 and gone - now or 0)
      else
        record.write(id, r)
        set_lock(id, ARGV[i + 8], tonumber(ARGV[i + 9]))
        if r.state == record.LEASED then
          take_lease(id, r, s, ARGV[i + 7])
        else
          task.enter(id, r)
          source.outstanding(s, r, 1)
        end
      end
      taken = taken + 1
    end
  end
  finish(false)
  return taken
end

-- Reads what queues know beside their tasks.
--
-- ARGV     names
-- Returns  flat, per queue: name, next grant, end of the block, its step, its begin, the delay
--          that the host asks for, hashes of failed URLs, the cause of the block
-- Cost     O(1) a queue
-- flags: no-writes
function scripts.exportqueues()
  local out = {}
  queue.read_all(args_from(1))
  for i = 1, #ARGV do
    local q, n = queue.get(ARGV[i]), #out
    if q.exists and not q.over then
      out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5], out[n + 6], out[n + 7] = q.name, q.next_grant, q.block, q.step, q.began, q.asked, q.failed
      out[n + 8] = call('GET', key.cause(q.name)) or ''
    end
  end
  return out
end

-- Sets what queues know beside their tasks, of those that have tasks or a gate.
--
-- ARGV     per queue what exportqueues returns
-- Returns  1
-- Cost     O(log n) a queue; at most 100
-- flags: none
function scripts.importqueues()
  for i = 1, #ARGV, 8 do
    local q, next_grant, block = queue.get(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    if q.exists and not q.over or max(next_grant, block) > now then
      q.next_grant, q.block, q.step, q.began = next_grant, block, tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
      q.asked, q.failed, q.dirty, q.touched = tonumber(ARGV[i + 5]), ARGV[i + 6], true, true
      if ARGV[i + 7] ~= '' and block > now then call('SET', key.cause(q.name), ARGV[i + 7], 'PXAT', decimal(block - 1)) end
    end
  end
  finish(false)
  return 1
end

-- Reads collectors of this home shard.
--
-- ARGV     ids
-- Returns  per known collector: id, session, first, seen, whether it is fresh, whether it has
--          ended, info (JSON; '' = its session has sent no beat), replaced sessions
-- Cost     O(log n) a collector, at most 100 replaced sessions each
-- flags: no-writes
function scripts.exportcollectors()
  local out = {}
  for i = 1, #ARGV do
    local c = collector.unpack(call('GET', collector.key(ARGV[i])))
    if c and c[3] + DAY > now then
      out[#out + 1] = { ARGV[i], c[1], decimal(c[2]), decimal(c[3]), c[4] and 1 or 0, c[6] and 1 or 0, c[5],
        unpack(call('ZRANGE', P .. 'old:' .. ARGV[i], 0, -1)) }
    end
  end
  return out
end

-- Replaces what is known of collectors of this home shard.
--
-- ARGV     per collector: what exportcollectors returns, with the number of replaced sessions
--          before these
-- Returns  1
-- Cost     O(log n) a collector and a session
-- flags: none
function scripts.importcollectors()
  local i = 1
  while i <= #ARGV do
    local id, seen, ended, n = ARGV[i], tonumber(ARGV[i + 3]), ARGV[i + 5] == '1', tonumber(ARGV[i + 7])
    call('SET', collector.key(id), cmsgpack.pack({ ARGV[i + 1], tonumber(ARGV[i + 2]), seen, ARGV[i + 4] == '1', ARGV[i + 6], ended or nil }))
    call('DEL', P .. 'old:' .. id)
    for k = 1, n do call('ZADD', P .. 'old:' .. id, decimal(now - n + k), ARGV[i + 7 + k]) end
    call('ZADD', P .. 'colls', 0, id)
    call('ZREM', ended and P .. 'seen' or P .. 'ended', id)
    call('ZADD', ended and P .. 'ended' or P .. 'seen', decimal(seen), id)
    if n > 0 then -- this shard refuses the sessions that were replaced
      call('SET', key.keep(id), ARGV[i + 1])
      expire_at(key.keep(id), now + DAY)
    end
    i = i + 8 + n
  end
  return 1
end

-- Notes used client tokens of a step. Of several shards one is the home of their collectors,
-- where polls look for them.
--
-- ARGV     step, whether the store has several shards (0, 1); digests of holders
-- Returns  1
-- Cost     O(1) a token
-- flags: none
function scripts.importtokens()
  local step, digests = tonumber(ARGV[1]), args_from(3)
  token.used.add(step, digests)
  if ARGV[2] == '1' then token.polled.note_for(digests, 2 * 600000) end
  shard.tally('used', max(step - shard.counts().used, 0))
  finish(false)
  return 1
end
