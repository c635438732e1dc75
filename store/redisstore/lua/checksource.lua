-- The check of sources, and of what is counted: of a source, and of the shard.
local MOST_LANES, MOST_NAMED, MOST_TASKS, MOST_SOURCES, MOST_QUEUES = 100, 1000, 1000, 10000, 5000

-- A number without a gate keeps nothing once it has no tasks.
local function forget(n)
  for _, name in ipairs({ key.source(n), key.counts(n), key.drop(n), key.source_open(n), key.source_wait(n) }) do call('DEL', name) end
  for _, hash in ipairs({ key.filtered, key.named }) do call('HDEL', hash, n) end
end

-- Whether a number has tasks that wait, are leased, dead or canceled.
local function is_used(n, tasks) return tasks > 0 or call('EXISTS', key.lanes(n)) == 1 end

-- Whether there is something that forget deletes, and no sweep is to delete.
local function is_kept(n)
  if call('ZSCORE', key.forget, key.source(n)) then return false end
  return call('EXISTS', key.source(n), key.counts(n), key.drop(n), key.source_open(n), key.source_wait(n)) > 0
    or call('HEXISTS', key.filtered, n) + call('HEXISTS', key.named, n) > 0
end

local function check_gate(n, tasks, its_uid, known, i, moves)
  local text, packed = text_of(n), call('GET', key.source(n))
  local counted = call('STRLEN', key.counts(n))
  if counted > 0 and counted ~= source.COUNTS_SIZE and check.found('count', text, 'the counts of the source are damaged') then
    call('SET', key.counts(n), sub(ZEROS, 1, source.COUNTS_SIZE))
  end
  if counted > 0 and counted ~= source.COUNTS_SIZE and not check.repairs() then return end
  if packed and not source.is_whole(packed) then packed = false end
  if not packed and not known then
    if tasks > 0 then check.found('source', text, 'the shard has lost what it knows of it', true)
    elseif not is_used(n, tasks) and is_kept(n) and check.found('source', text, 'something is kept of a source that is gone') then forget(n) end
    return
  end
  local uid = packed and source.get(n).uid or ARGV[i]
  if its_uid ~= '' and its_uid ~= uid and call('GET', key.uid(its_uid)) == text
      and check.found('source', text, 'two sources have this number, ' .. uid .. ' and ' .. its_uid) then
    call('DEL', key.uid(its_uid)) -- it gets another one with its next task
  end
  local m = tonumber(call('GET', key.uid(uid)) or nil)
  local other = m and m ~= n and call('GET', key.source(m))
  if other and source.is_whole(other) and source.get(m).uid == uid then
    if not is_used(n, tasks) then
      if check.found('source', text, 'its source has another number') then forget(n) end
    else
      moves[#moves + 1], moves[#moves + 2] = n, m
    end
  elseif not packed then
    if is_used(n, tasks) or counted > 0 then
      if check.found('source', text, 'its gate is lost') then source.restore(n, i) end
    elseif check.found('source', text, 'its uid has this number, and nothing else has it') then
      call('DEL', key.uid(uid))
    end
  elseif m ~= n and check.found('source', text, 'its uid has another number') then
    call('SET', key.uid(uid), n)
    local ttl = call('PTTL', key.source(n))
    if ttl > 0 then call('PEXPIRE', key.uid(uid), ttl) end
  end
  if shard.counts().sources < n and check.found('count', 'shard', 'the last number of a source is lost') then
    shard.tally('sources', n - shard.counts().sources)
  end
end

-- Checks what the shard knows of sources.
--
-- ARGV     whether to repair (0, 1); per source: its number, how many of its tasks were seen, the uid
--          that has the number ('' = none), and whether the gate of that is known (0, 1): if it
--          is, then 12 values (source.lua)
-- Returns  findings; and flat, numbers whose tasks belong to another one, and that
-- Cost     about 6 commands a source; at most 100
function scripts.checksources()
  check.begin(ARGV[1])
  local moves, at = {}, 2
  while at <= #ARGV do
    local known = ARGV[at + 3] == '1'
    check_gate(tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2], known, at + 4, moves)
    at = at + 4 + (known and source.GATE_ARGS or 0)
  end
  return { check.finish(), moves }
end

local FIELDS = { 'scheduled', 'ready', 'leased', 'dead', 'canceled', 'out', 'kept' }

-- The leases and orphans of a source, flat: id, and the state that it counts as; nil for too many
-- of them in the shard. They are read once a call.
local leased_by
local function leases_of(n)
  if not leased_by then
    local by = {}
    if not check.each_lease(function(id, its, _, orphan) add_to(by, its, id, orphan and 'ready' or 'leased') end) then return nil end
    leased_by = by
  end
  return leased_by[n] or {}
end

-- The ids of the tasks of a source that wait or are leased, and of its settled ones, with sums by where they stand; nil for
-- too many. A task that is there anew may stand among the settled ones until a sweep, too.
local function tasks_of(n)
  if call('SCARD', key.lanes(n)) > MOST_LANES then return nil end
  local open, settled_ids, sums, names = {}, {}, { scheduled = 0, ready = 0, leased = 0, dead = 0, canceled = 0, out = 0, kept = 0 }, call('SMEMBERS', key.lanes(n))
  local function add(id) open[#open + 1] = id end
  queue.read_all(names)
  for _, queue_name in ipairs(names) do
    local q = queue.get(queue_name)
    local l, name = queue.lane(q, n), text_of(n) .. ':' .. queue_name
    if l and lane.size(l) + #open + #settled_ids > MOST_TASKS then return nil end
    for _, e in ipairs(l and lane.all(l, lane.HEAD) or {}) do
      add(q.slot .. '-' .. e.suffix)
      local field = e.score < lane.LATER and 'ready' or 'scheduled'
      sums[field] = sums[field] + 1
    end
    if l and l.more > 0 then
      local found = call('ZRANGE', key.set(name), 0, -1, 'WITHSCORES')
      for i = 1, #found, 2 do
        add(q.slot .. '-' .. found[i])
        local field = tonumber(found[i + 1]) < lane.LATER and 'ready' or 'scheduled'
        sums[field] = sums[field] + 1
      end
    end
    for field, set in pairs({ dead = key.dead(name), canceled = key.canceled(name) }) do
      local found = call('ZCARD', set) + #open + #settled_ids <= MOST_TASKS and call('ZRANGE', set, 0, -1)
      if not found then return nil end
      sums[field] = sums[field] + #found
      for i = 1, #found do settled_ids[#settled_ids + 1] = found[i] end
    end
    sums.kept = sums.kept + call('SISMEMBER', key.kept, name)
  end
  local leases = leases_of(n)
  if not leases then return nil end
  for i = 1, #leases, 2 do
    add(leases[i])
    sums[leases[i + 1]] = sums[leases[i + 1]] + 1
  end
  if #open + #settled_ids > MOST_TASKS then return nil end
  return open, settled_ids, sums
end

-- The parts of a record that are counted: state, whether it is recurring.
local function head_of(id)
  local raw = call('GETRANGE', key.task(id), 0, record.LEASE + record.HEADER - 1)
  if #raw < record.HEADER then return nil end
  local from, leased = 1, byte(raw) == record.MARK
  if leased then from = record.LEASE + 1 end
  local state, flags = byte(raw, from + 1, from + 2)
  if not flags then return nil end
  return leased and record.LEASED or state, flags % 2 >= 1
end

-- What is counted of a source, in one step; nil for one with too many tasks.
local function count_source(n)
  local open, settled_ids, sums = tasks_of(n)
  if not open then return nil end
  for _, id in ipairs(settled_ids) do
    if head_of(id) == record.DONE then sums.canceled = sums.canceled - 1 end -- stands there, and counts as done
  end
  for _, id in ipairs(open) do
    local state, recurring = head_of(id)
    if (state == record.WAITING or state == record.LEASED) and not recurring then sums.out = sums.out + 1 end
  end
  return sums
end

-- What was counted of a source from outside, while nothing of it changed.
local function counted_sums(n, i)
  if ARGV[i] == '' or call('GET', key.counts(n)) ~= ARGV[i] then return nil end
  local c = source.counts(source.get(n))
  local waits = tonumber(ARGV[i + 1])
  local scheduled = max(0, min(c.scheduled, waits))
  return { scheduled = scheduled, ready = waits - scheduled, leased = tonumber(ARGV[i + 2]), dead = tonumber(ARGV[i + 4]),
    canceled = tonumber(ARGV[i + 5]), out = tonumber(ARGV[i + 6]), kept = tonumber(ARGV[i + 7]) }
end

-- How many done tasks those counts have.
local function done_before(counts)
  if #counts ~= source.COUNTS_SIZE then return 0 end
  local _, _, _, done = parse('>i6i6i6i6', counts)
  return done
end

-- Checks what is counted of sources: in one step of those with at most 1,000 tasks and 100 lanes,
-- of others if nothing of them has changed while they were counted from outside. Of done tasks no
-- set tells: those that were counted from outside are the least that there are, and others may
-- have come since.
--
-- ARGV     whether to repair (0, 1); per source: its number, its counts as they were before ('' =
--          not known), and how many tasks wait, are leased, done, dead, canceled; one-shot
--          tasks that wait or are leased; lanes with dead or canceled tasks
-- Returns  findings
-- Cost     O(1) a task and a lease; at most 1,000 tasks a source, and 10 sources
function scripts.checkcounts()
  check.begin(ARGV[1])
  leased_by = nil
  for i = 2, #ARGV, 9 do
    local n = tonumber(ARGV[i])
    local s = source.get(n)
    local sums = s.gate and (count_source(n) or counted_sums(n, i + 1))
    if s.gate and not sums then check.skipped('source ' .. n, 'its counts are not compared, since its tasks changed meanwhile') end
    local done = tonumber(ARGV[i + 4])
    if sums then
      local c, wrong = source.counts(s), {}
      for _, field in ipairs(FIELDS) do
        if c[field] ~= sums[field] then wrong[#wrong + 1] = field .. ' ' .. decimal(c[field]) .. ', there are ' .. decimal(sums[field]) end
      end
      if c.done < done then wrong[#wrong + 1] = 'done ' .. decimal(c.done) .. ', there are ' .. decimal(done) end
      if wrong[1] and check.found('count', text_of(n), 'the source counts ' .. concat(wrong, '; ')) then
        for _, field in ipairs(FIELDS) do c[field] = sums[field] end
        c.done = c.done + max(done - done_before(ARGV[i + 1]), 0)
      end
    end
  end
  return check.finish()
end

-- What all sources count, in one step; nil for too many of them.
local function sum_sources()
  local last, sums = shard.counts().sources, { scheduled = 0, ready = 0, leased = 0, dead = 0, canceled = 0, done = 0 }
  if last > MOST_SOURCES then return nil end
  for from = 1, last, 1000 do
    local keys = {}
    for n = from, min(from + 999, last) do keys[#keys + 1] = key.counts(text_of(n)) end
    for _, packed in ipairs(call('MGET', unpack(keys))) do
      if packed and #packed == source.COUNTS_SIZE then
        local scheduled, ready, leased, done, dead, canceled = parse('>i6i6i6i6i6i6', packed)
        sums.scheduled, sums.ready, sums.leased = sums.scheduled + scheduled, sums.ready + ready, sums.leased + leased
        sums.dead, sums.canceled, sums.done = sums.dead + dead, sums.canceled + canceled, sums.done + done
      end
    end
  end
  return sums
end

-- How many queues stand in neither set of a pool, by what they wait for; nil for too many queues.
local function count_closed()
  if call('ZCARD', key.queues) > MOST_QUEUES then return nil end
  local names, counts, kinds = call('ZRANGE', key.queues, 0, -1), {}, { [pool.HELD] = 'held:', [pool.FULL] = 'full:', [pool.LATER] = 'later:' }
  for i = 1, #names do names[i] = queue.reversed(names[i]) end
  for from = 1, #names, 100 do queue.read_all({ unpack(names, from, min(from + 99, #names)) }) end
  for _, name in ipairs(names) do
    local a = queue.get(name).part
    while a do
      local kind = kinds[a.stands]
      if kind then counts[kind .. a.pool] = (counts[kind .. a.pool] or 0) + 1 end
      a = a.next
    end
  end
  return counts
end

-- Checks what the shard counts: tasks in all, in one step where it has at most 10,000 sources,
-- and closed queues where it has at most 5,000.
--
-- ARGV     whether to repair (0, 1); per state the tasks of sources that the shard does not know:
--          waiting, leased, dead, canceled
-- Returns  findings
-- Cost     O(1) a source and a queue
function scripts.checkshard()
  check.begin(ARGV[1])
  local c, sums = shard.counts(), sum_sources()
  local closed = count_closed()
  if not sums then check.skipped('shard', 'its counts are not compared: it has more than ' .. MOST_SOURCES .. ' sources') end
  if not closed then check.skipped('shard', 'the counts of closed queues are not compared: it has more than ' .. MOST_QUEUES .. ' queues') end
  if sums then
    local wrong = {}
    sums.ready = sums.ready + tonumber(ARGV[2])
    sums.leased, sums.dead, sums.canceled = sums.leased + tonumber(ARGV[3]), sums.dead + tonumber(ARGV[4]), sums.canceled + tonumber(ARGV[5])
    sums.done = max(sums.done, c.done)
    for _, field in ipairs({ 'scheduled', 'ready', 'leased', 'dead', 'canceled', 'done' }) do
      if c[field] ~= sums[field] then wrong[#wrong + 1] = field .. ' ' .. decimal(c[field]) .. ', there are ' .. decimal(sums[field]) end
    end
    if wrong[1] and check.found('count', 'shard', 'the shard counts ' .. concat(wrong, '; ')) then
      for field, n in pairs(sums) do shard.tally(field, n - c[field]) end
    end
  end
  local kept = call('HGETALL', key.closed)
  for i = 1, closed and #kept or 0, 2 do
    local n = closed[kept[i]] or 0
    closed[kept[i]] = nil
    if tonumber(kept[i + 1]) ~= n and check.found('count', kept[i], kept[i + 1] .. ' queues are counted as that, there are ' .. n) then
      call('HSET', key.closed, kept[i], n)
    end
  end
  for field, n in pairs(closed or {}) do
    if check.found('count', field, n .. ' queues are that, and are not counted') then call('HSET', key.closed, field, n) end
  end
  return check.finish()
end

-- What is wrong with where lanes stand for claims that name their source; nil for nothing.
local function named_fault(s)
  local opens, waits, n = key.source_open(s.n), key.source_wait(s.n), 0
  if s.named == 0 or s.deleted then
    return s.named == 0 and (call('EXISTS', opens, waits) > 0 or call('HEXISTS', key.named, s.n) == 1) and 'it is not named, and its lanes are listed' or nil
  end
  local all = named.of(s).all == 1
  for _, queue_name in ipairs(call('SMEMBERS', key.lanes(s.n))) do
    local q = queue.get(queue_name)
    local l, open, wait = queue.lane(q, s.n), tonumber(call('ZSCORE', opens, queue_name) or nil), tonumber(call('ZSCORE', waits, queue_name) or nil)
    if open or wait then n = n + 1 end
    if open and wait or (open or wait) and (not l or lane.is_empty(l)) then return 'a lane is listed for it twice, or is empty' end
    if all and l and l.pool == s.pool then
      local aside = call('SISMEMBER', key.aside({ pool = l.pool, queue = queue_name }), s.n) == 1
      local right = l.open and (open == l.open or wait and (aside or wait < INF)) or l.wait and wait == l.wait or not l.open and not l.wait and not open and not wait
      if not right then return 'lane ' .. l.name .. ' is listed for it at another place' end
    end
  end
  return call('ZCARD', opens) + call('ZCARD', waits) ~= n and 'lanes are listed for it that it does not have' or nil
end

-- Checks the lanes of sources that claims name. Where they are wrong the next such claim lists
-- them anew.
--
-- ARGV     whether to repair (0, 1); numbers of sources
-- Returns  findings
-- Cost     O(log n) a lane; of a source with more than 1,000 lanes none
function scripts.checknamed()
  check.begin(ARGV[1])
  for i = 2, #ARGV do
    local s = source.get(tonumber(ARGV[i]))
    local many = call('SCARD', key.lanes(s.n)) > MOST_NAMED
    if many and s.named ~= 0 then check.skipped('source ' .. ARGV[i], 'where its lanes are listed for claims that name it is not compared: it has more than ' .. MOST_NAMED) end
    local fault = not many and named_fault(s)
    if fault and check.found('list', 'source ' .. ARGV[i], fault) then named.forget(s) end
  end
  return check.finish()
end

-- Checks in which indexes of their home shard sources are. A source that was changed since it was
-- read is left out.
--
-- ARGV     whether to repair (0, 1); per source: its id, the source ('' = none), whether a version
--          is pending, and whether it has holds (0, 1)
-- Returns  findings
-- Cost     O(log n) a source; at most 100
function scripts.checkhome()
  check.begin(ARGV[1])
  for i = 2, #ARGV, 4 do
    local id, raw = ARGV[i], ARGV[i + 1]
    if (call('GET', P .. 'source:' .. id) or '') == raw then
      for index, wanted in pairs({ sources = raw ~= '', pending = ARGV[i + 2] == '1', heldsources = ARGV[i + 3] == '1' }) do
        local listed = call('ZSCORE', P .. index, id) and true or false
        if listed ~= wanted and check.found('list', id, 'index ' .. index .. (listed and ' has the source, and should not' or ' does not have the source')) then
          if wanted then call('ZADD', P .. index, 0, id) else call('ZREM', P .. index, id) end
        end
      end
    end
  end
  return check.finish()
end

-- Checks in which indexes of their home shard collectors are, by their records.
--
-- ARGV     whether to repair (0, 1); ids
-- Returns  findings
-- Cost     O(log n) a collector; at most 100
function scripts.checkcollectors()
  check.begin(ARGV[1])
  for i = 2, #ARGV do
    local id = ARGV[i]
    local c = collector.unpack(call('GET', collector.key(id)))
    for index, wanted in pairs({ colls = c and 0 or false, seen = c and not c[6] and c[3] or false, ended = c and c[6] and c[3] or false }) do
      local at = tonumber(call('ZSCORE', P .. index, id) or nil) or false
      if at ~= wanted and check.found('list', id, 'index ' .. index .. (wanted and ' does not have the collector as it was seen' or ' has the collector, and should not')) then
        if wanted then call('ZADD', P .. index, decimal(wanted), id) else call('ZREM', P .. index, id) end
      end
    end
  end
  return check.finish()
end
