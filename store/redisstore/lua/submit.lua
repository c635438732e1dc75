-- Creates tasks, or updates those that exist (dispatch.Tasks.Submit).
--
-- KEYS[1]  the shard key
-- ARGV     rules version, number of gates, queues and series, whether an id occurs twice
--          (0, 1); 12 values a gate (parts/gate.lua); the queues; the series, packed one
--          after the other (SERIES, below); per item the end of its id and the rest of
--          its record. Times in ms.
-- Returns  code and state of each item, a byte each
-- Cost     O(log n) an item; at most 100 items
--
-- flags: none
-- uses: gate enter meet

local read_gate_of_call, read_series
do
  -- What the items of a series have in common: gate, queue (both from 1), recurring,
  -- priority, if exists, due (0 = now), revisit after, modified (with RETRY: the
  -- revision that is brought back, 0 = any); how many they are; and their slot (submit.go).
  local SERIES = '>I2I2BBBI6I6I6I2Bc0'
  local STALE_SOURCE, STALE_RULES, DELETED = 5, 6, 7

  -- Takes the gate at position i: its source, and why nothing of it is taken in, false =
  -- it is.
  function read_gate_of_call(i)
    local s, version = take_gate(i)
    if s.deleted then return { source = s, refusal = DELETED } end
    if s.version > version then return { source = s, refusal = STALE_SOURCE } end
    return { source = s, refusal = rules_version > tonumber(ARGV[1]) and STALE_RULES }
  end

  -- Reads the series at a position into s, a table of an earlier call or an empty one.
  function read_series(s, packed, at, gates, queue_names)
    local n_gate, queue, recurring, due, to
    n_gate, queue, recurring, s.priority, s.if_exists, due, s.revisit_after, s.modified, s.n, s.slot, to = struct.unpack(SERIES, packed, at)
    local gate = gates[n_gate]
    s.source, s.refusal, s.queue, s.recurring, s.due = gate.source, gate.refusal, queue_names[queue], recurring == 1, due > 0 and due or now
    s.created, s.lane = 0, false
    return to
  end
end

local submit, end_series
do
  -- Takes in an item, given the record that there is under its key: its code and
  -- its state.
  function submit(series, key, suffix, rest, raw)
    if series.refusal then return series.refusal, 0 end
    local r = raw and read_record(raw)
    if r then
      end_series(series)
      return submit_again(series, suffix, key, rest, r)
    end
    if not series.recurring then
      if series.source.limit > 0 and limited(series.source, series.created) then return LIMITED, 0 end
      series.created = series.created + 1
    end
    enter(series, key, suffix, rest)
    return CREATED, series.due <= now and 2 or WAITING
  end

  -- Counts what was made of a series so far.
  function end_series(series)
    if series.created > 0 then tally_source(series.source.uid, 'out', series.created) end
    series.created = 0
  end
end

-- So many records are read at once.
local READ_AT_ONCE = 25

-- Of the call, the first n_series of all_series, and where the items begin in ARGV.
local all_series, n_series, from, task_keys = {}, 0, nil, nil

local function read_call()
  local gates, at, to = {}, 6, 1
  for i = 1, tonumber(ARGV[2]) do
    gates[i], at = read_gate_of_call(at), at + GATE_ARGS
  end
  local queue_names = { unpack(ARGV, at, at + tonumber(ARGV[3]) - 1) }
  at = at + #queue_names
  n_series = tonumber(ARGV[4])
  for i = 1, n_series do
    all_series[i] = all_series[i] or {}
    to = read_series(all_series[i], ARGV[at], to, gates, queue_names)
  end
  from = at + 1
end

local function name_keys()
  local n = 0
  for k = 1, n_series do
    local series = all_series[k]
    local prefix = task_key(series.slot) .. '-'
    for i = n + 1, n + series.n do task_keys[i] = prefix .. ARGV[from + 2 * i - 2] end
    n = n + series.n
  end
end

-- The records of the items from the i-th on.
local function read_records(i) return call('MGET', unpack(task_keys, i, min(i + READ_AT_ONCE - 1, #task_keys))) end

-- What an earlier item of the call made or changed, read again.
local function read_again(key)
  enter_all()
  flush_writes()
  return call('GET', key)
end

-- at each call
task_keys = {}
read_shard()
read_call()
name_keys()
local out, met, raws, i, twice = {}, {}, find_lanes(all_series, n_series, { unpack(task_keys, 1, READ_AT_ONCE) }), 0, ARGV[5] == '1'
for s = 1, n_series do
  local series = all_series[s]
  for _ = 1, series.n do
    i = i + 1
    local k, key = (i - 1) % READ_AT_ONCE + 1, task_keys[i]
    if k == 1 and i > 1 then raws = read_records(i) end
    local raw = raws[k]
    if twice then
      if met[key] then raw = read_again(key) end
      met[key] = true
    end
    out[2 * i - 1], out[2 * i] = submit(series, key, ARGV[from + 2 * i - 2], ARGV[from + 2 * i - 1], raw)
  end
  end_series(series)
end
enter_all()
finish(true)
return string.char(unpack(out))
