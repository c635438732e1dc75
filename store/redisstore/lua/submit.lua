-- New tasks. A series is of tasks that were submitted one after the other, and differ in
-- their ids and bodies only.
local CREATED, LIMITED, STALE_SOURCE, STALE_RULES, DELETED = 1, 4, 5, 6, 7

-- What the items of a series have in common: gate, queue (both from 1), recurring (2: no,
-- but no limit refuses it), priority, if exists, due (0 = now), revisit after, modified (with RETRY: the revision
-- that is brought back, 0 = any); how many they are; and their slot (submit.go).
local SERIES = '>I2I2BBBI6I6I6I2Bc0'
-- So many records are read at once.
local READ_AT_ONCE = 25

-- Takes the gate at position i: its source, and why nothing of it is taken in, false = it
-- is.
local function read_gate(i)
  local s, version = source.take_gate(i)
  if s.deleted then return { n = s.n, refusal = DELETED } end
  if s.version > version then return { n = s.n, refusal = STALE_SOURCE } end
  return { n = s.n, refusal = shard.rules > tonumber(ARGV[1]) and STALE_RULES }
end

local function read_series(packed, gates, queue_names)
  local all, at = {}, 1
  while at <= #packed do
    local g, queue_, recurring, priority, if_exists, due, revisit_after, modified, n, slot
    g, queue_, recurring, priority, if_exists, due, revisit_after, modified, n, slot, at = parse(SERIES, packed, at)
    all[#all + 1] = {
      source = source.get(gates[g].n), refusal = gates[g].refusal, queue = queue_names[queue_], recurring = recurring == 1, free = recurring > 0,
      priority = priority, if_exists = if_exists, due = due > 0 and due or now, revisit_after = revisit_after, modified = modified,
      n = n, slot = slot, fresh = {}, created = 0, lane = false, score = 0, head = '',
    }
  end
  return all
end

-- What the records of new tasks of a series begin with: version, state, flags, revision,
-- source, due and created. Go packs what follows.
function task.begin_record(series)
  return pack('>BBBI4I4I6I6', 1, record.WAITING, series.recurring and record.RECURRING or 0, 1, series.source.n, series.due, now)
end

-- Whether a source has all the one-shot tasks that it may.
function task.limited(s, more)
  if s.limit == 0 or source.counts(s).out + more < s.limit then return false end
  source.tally(s, 'limited', 1)
  return true
end

local function begin_series(series)
  local q = queue.get(series.queue)
  local rank = record.rank(series)
  series.lane, series.head = queue.make_lane(q, series.source.n), task.begin_record(series)
  series.score = series.due <= now and rank * BAND + series.due or lane.LATER + series.due * 32 + rank
  q.slot = series.slot
end

-- Takes out what the lease index still says of records that were lost.
local function clear_leases(all)
  local members, orphaned = {}, shard.counts().orphaned > 0
  for _, series in ipairs(all) do
    local q = series.lane.q
    if q.in_flight > 0 or orphaned or not q.exists then
      local prefix, tail = series.slot .. '-', ':' .. series.lane.name
      for _, suffix in ipairs(series.fresh) do
        members[#members + 1] = prefix .. suffix .. tail
        if orphaned then members[#members + 1] = prefix .. suffix .. '~' .. tail end
      end
    end
  end
  for i, at in ipairs(members[1] and call('ZMSCORE', key.leases, unpack(members)) or {}) do
    if at then lease.drop(members[i]) end
  end
end

-- What sets of settled tasks, and the lease index, still say of records that were lost; all
-- are the series that have new tasks.
local function clear_lost(all)
  if not all[1] then return end
  clear_leases(all)
  local names = {}
  for i, series in ipairs(all) do names[i] = series.lane.name end
  for i, kept in ipairs(call('SMISMEMBER', key.kept, unpack(names))) do
    if kept == 1 then
      local s, ids = all[i].source, {}
      for k, suffix in ipairs(all[i].fresh) do ids[k] = all[i].slot .. '-' .. suffix end
      source.count(s, 'dead', -call('ZREM', key.dead(names[i]), unpack(ids)))
      source.count(s, 'canceled', -call('ZREM', key.canceled(names[i]), unpack(ids)))
    end
  end
end

-- Puts the new tasks that were noted of a series so far into its lane, and counts them.
local function end_series(series)
  local s, l, n = series.source, series.lane, series.created
  if n == 0 then return end
  lane.add(l, series.score, series.fresh, #series.fresh - n + 1)
  l.q.waiting, l.q.dirty, series.created = l.q.waiting + n, true, 0
  source.count(s, series.due <= now and 'ready' or 'scheduled', n)
  if not series.recurring then source.tally(s, 'out', n) end
  lane.touch(l)
end

-- Takes in an item, given the record that there is under its key: its code and its state.
local function submit(series, name, suffix, rest, raw)
  if series.refusal then return series.refusal, 0 end
  local r = raw and record.read(raw)
  if r then
    end_series(series)
    return task.submit_again(series, suffix, name, rest, r)
  end
  if not series.free and task.limited(series.source, series.created) then return LIMITED, 0 end
  if not series.lane then begin_series(series) end
  local fresh = series.fresh
  fresh[#fresh + 1], series.created = suffix, series.created + 1
  write(name, series.head .. rest)
  return CREATED, series.due <= now and 2 or record.WAITING
end

-- Creates tasks, or updates those that exist (dispatch.Tasks.Submit).
--
-- ARGV     rules version, number of gates, queues and series, whether an id occurs twice
--          (0, 1); 12 values a gate (source.lua); the queues; the series, packed one
--          after the other (SERIES); per item the end of its id and the rest of its
--          record. Times in ms.
-- Returns  code and state of each item, a byte each
-- Cost     O(log n) an item; at most 100 items
-- flags: none
-- acknowledged
function scripts.submit()
  local gates, at, out, met, fresh, twice = {}, 6, {}, {}, {}, ARGV[5] == '1'
  shard.read()
  for i = 1, tonumber(ARGV[2]) do
    gates[i], at = read_gate(at), at + source.GATE_ARGS
  end
  local queue_names = { unpack(ARGV, at, at + tonumber(ARGV[3]) - 1) }
  at = at + #queue_names
  queue.read_all(queue_names)
  local all, names, n, i = read_series(ARGV[at], gates, queue_names), {}, 0, 0
  local from = at + 1
  for _, series in ipairs(all) do
    local prefix = key.task(series.slot) .. '-'
    for k = n + 1, n + series.n do names[k] = prefix .. ARGV[from + 2 * k - 2] end
    n = n + series.n
  end
  local raws
  for _, series in ipairs(all) do
    for _ = 1, series.n do
      i = i + 1
      local k, name = (i - 1) % READ_AT_ONCE + 1, names[i]
      if k == 1 then raws = call('MGET', unpack(names, i, min(i + READ_AT_ONCE - 1, n))) end
      local raw = raws[k]
      if twice then
        if met[name] then -- what an earlier item of the call made or changed, read again
          flush_writes()
          raw = call('GET', name)
        end
        met[name] = true
      end
      out[2 * i - 1], out[2 * i] = submit(series, name, ARGV[from + 2 * i - 2], ARGV[from + 2 * i - 1], raw)
    end
    end_series(series)
    if series.lane then fresh[#fresh + 1] = series end
  end
  clear_lost(fresh)
  finish(true)
  return string.char(unpack(out))
end
