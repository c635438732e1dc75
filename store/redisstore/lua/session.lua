-- Polls and sessions of collectors.

-- Records polls in the collectors' home shard (dispatch.Claims.BeginPolls).
--
-- ARGV     whether the store has several shards (0, 1): 1 = record only that the client
--          token was polled, 0 = read its grant; per poll: collector, session, client
--          token, call, the holder's digest
-- Returns  now, sources; and flat, per poll: replaced, new session, used (or: polled
--          before), tasks still held
-- Cost     O(1) a poll, O(1) a task
function scripts.polls()
  local several, list, keys, asks, digests, answers = ARGV[1] == '1', reply.new(), {}, {}, {}, {}
  for i = 2, #ARGV, 5 do
    local n = #asks + 1
    keys[n], digests[n] = collector.key(ARGV[i]), ARGV[i + 4]
    asks[n] = { collector = ARGV[i], session = ARGV[i + 1], token = ARGV[i + 2], call = ARGV[i + 3], holder = ARGV[i + 4] }
  end
  local collectors, tokens, met = call('MGET', unpack(keys)), several and token.polled.known(digests) or grant.known(asks), {}
  local polled, again = {}, {}
  for i, a in ipairs(asks) do
    local packed = met[a.collector] and call('GET', keys[i]) or collectors[i]
    local replaced, fresh = collector.see(packed, a.collector, a.session, nil)
    local used, held = 0, { sources = list.sources, told = list.told, tasks = {} }
    met[a.collector] = true
    if replaced == 0 and several then
      used = (tokens[i] or again[a.holder]) and 1 or 0
      polled[#polled + 1], again[a.holder] = a.holder, true
    elseif replaced == 0 and tokens[i] then
      used = 1
      grant.replay(held, a, tokens[i])
    end
    local n = #answers
    answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = replaced, fresh, used, held.tasks
  end
  if #polled > 0 then token.polled.note(polled) end
  return { now, list.sources, answers }
end

-- Returns the tasks that are still held by the grants of repeated client tokens in this
-- shard (dispatch.Claims.BeginPolls).
--
-- ARGV     per poll: collector, client token, the holder's digest, call
-- Returns  now, sources, and per poll: false, or the tasks still held
-- Cost     O(1) a task
function scripts.replay()
  local asks, list, answers = {}, reply.new(), {}
  for i = 1, #ARGV, 4 do
    asks[#asks + 1] = { collector = ARGV[i], token = ARGV[i + 1], holder = ARGV[i + 2], call = ARGV[i + 3] }
  end
  for i, found in ipairs(grant.known(asks)) do
    answers[i] = false
    if found then
      local held = { sources = list.sources, told = list.told, tasks = {} }
      grant.replay(held, asks[i], found)
      answers[i] = held.tasks
    end
  end
  return { now, list.sources, answers }
end

-- Ends all sessions of a collector except one in this shard, and returns some of the tasks
-- that they hold (dispatch.Leases.EndSession): those found by one step of a scan of the
-- collector's grants. It does nothing if that session was replaced.
--
-- ARGV     collector, the session to keep, limit, whether this is the collector's
--          home shard and nothing was found before (0, 1); cursor ('0' = begin, '' =
--          the end), and the fields that the scan has found and that are not read yet
-- Returns  sources, tasks, and the start of the next step, as above
-- Cost     O(log n) a lease found, at most 300; and about 200 fields of a hash (its
--          values are too long for the listpack encoding)
function scripts.session()
  local SCAN, MOST = 100, 200
  local name, keep, limit, cursor = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
  local held, fields, out, found, reads, at = key.held(name), {}, reply.new(), 0, 0, 1

  -- Finds what is held of the tasks of a grant; says whether something may be.
  local function look(holder, ids)
    local before_ = found
    for _, id in ipairs(grant.ids(ids)) do
      if found == limit then return true end
      local raw = call('GET', key.task(id))
      local r = record.read(raw)
      reads = reads + 1
      if r and r.state == record.LEASED and r.holder == holder then
        reply.add(out, id, raw, r, reply.NOTHING)
        found = found + 1
      end
    end
    return found > before_
  end

  -- Looks at a field; of a grant of which nothing is held any more none stays.
  local function look_at(field)
    local note, token_ = grant.read(call('HGET', held, field)), match(field, '[^/]+')
    if note and note.session ~= keep and not look(name .. '/' .. token_, note.ids) then call('HDEL', held, token_, field) end
  end

  if collector.was_replaced(name, keep) then return { {}, {}, '' } end
  call('SET', key.keep(name), keep)
  expire_at(key.keep(name), now + DAY)
  fields = args_from(6)
  if #fields == 0 then
    local step = call('HSCAN', held, cursor, 'COUNT', SCAN)
    cursor = step[1] ~= '0' and step[1] or ''
    for i = 1, #step[2], 2 do
      if find(step[2][i], '/', 1, true) then fields[#fields + 1] = step[2][i] end
    end
  end
  while fields[at] and reads < MOST and found < limit do
    look_at(fields[at])
    at = at + 1
  end
  if ARGV[4] == '1' and cursor == '' and not fields[at] and found == 0 then collector.session_ended(name, keep) end
  return { out.sources, out.tasks, cursor, unpack(fields, at) }
end
