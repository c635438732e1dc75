-- What a client token was granted. Of a grant of which something is held its collector has
-- a note (internal/key): the session, the calls that answered from it, the first fence (the
-- others follow one by one), the ids, and what the grant did to its queues. With the last of
-- its leases the note ends, and the token was used (lock.lua).

-- The session, the calls, the first fence, the ids, the turns; and of a turn the queue, its
-- next grant before and after, the first of the ids and how many.
local NOTE, TURN = '>Bc0I2c0I8I2c0I2c0', '>I2c0I6I6I2I2'

-- The calls of a note are packed one after the other. bounds.MaxGrantCalls: of more none is
-- kept.
local CALL, MAX_CALLS = '>Bc0', 16

local function pack_call(by) return pack(CALL, #by, by) end

local function pack_note(session, calls, fence, ids, turns)
  return pack(NOTE, #session, session, #calls, calls, fence, #ids, ids, #turns, turns)
end

-- The ids of a grant: those that follow in one queue are without their slot.
function grant.ids(text)
  local ids, slot = {}, ''
  for id in string.gmatch(text, '%S+') do
    local at = find(id, '-', 1, true)
    if at then slot = sub(id, 1, at) else id = slot .. id end
    ids[#ids + 1] = id
  end
  return ids
end

-- The calls of a note without one of them, which is false where that is none of them; and
-- how many there are.
local function without(calls, by)
  local others, n, at = '', 0, 1
  while at <= #calls do
    local other
    other, at = parse(CALL, calls, at)
    if other ~= by then others = others .. pack_call(other) end
    n = n + 1
  end
  return #others < #calls and others, n
end

-- Notes which calls have answered.
local function note_calls(holder, token_, note, calls)
  local field = find(note.ids, ' ', 1, true) and token_ .. '/' or '/' .. token_
  call('HSET', key.held(holder), field, pack_note(note.session, calls, note.fence, note.ids, note.turns))
end

-- Notes what a want was granted: one task as such, since such a note ends at once.
function grant.note(w, ids)
  local name, n, turns = key.held(w.collector), #w.ids, w.turns and concat(w.turns) or ''
  local note = pack_note(w.session, pack_call(w.call), w.fence, ids, turns)
  if n == 1 then call('HSET', name, '/' .. w.token, note)
  else call('HSET', name, w.token, decimal(n), w.token .. '/', note) end
end

-- The packed note of what a client token was granted; false where nothing of it is held.
function grant.find(holder, token_)
  local found = call('HMGET', key.held(holder), '/' .. token_, token_ .. '/')
  return found[1] or found[2]
end

-- Reads a packed note; nil where there is none.
function grant.read(packed)
  if not packed then return nil end
  local session, calls, fence, ids, turns = parse(NOTE, packed)
  return { session = session, calls = calls, fence = fence, ids = ids, turns = turns }
end

-- Removes n leases from a collector's grant; returns whether nothing is left.
function grant.release(holder, n)
  local at = find(holder, '/', 1, true)
  local name, token_ = key.held(sub(holder, 1, at - 1)), sub(holder, at + 1)
  if n == 1 and call('HDEL', name, sub(holder, at)) == 1 then return true end
  if call('HINCRBY', name, token_, -n) > 0 then return false end
  call('HDEL', name, token_, token_ .. '/', '/' .. token_)
  return true
end

-- What is known of the client tokens that are asked for, each with its collector and the
-- holder's digest: the packed note, true where it was used and nothing is held, or false.
function grant.known(asks)
  if #asks == 0 then return {} end
  local found, digests = {}, {}
  for i, a in ipairs(asks) do found[i], digests[i] = grant.find(a.collector, a.token), a.holder end
  for i, used in ipairs(token.were_used(digests)) do found[i] = found[i] or used end
  return found
end

function grant.pack_turn(name, from, to, first, n) return pack(TURN, #name, name, from, to, first, n) end

-- Calls each with the id, the record and its place in the note of what is still held of the
-- grant.
local function each_held(note, holder, each)
  for i, id in ipairs(grant.ids(note.ids)) do
    local raw = call('GET', key.task(id))
    local r = record.read(raw)
    if r and r.digest == pack('>BI8', record.MARK, note.fence + i - 1) .. holder then each(id, r, raw, i) end
  end
end

-- Answers a repeated client token, given what is known of it: adds what is still held to a
-- list, and notes that this call has answered. Returns how many tasks those are.
function grant.replay(out, ask, found)
  local n = 0
  if found == true then return n end
  local note = grant.read(found)
  local others, calls = without(note.calls, ask.call)
  if calls > 0 and not others then
    note_calls(ask.collector, ask.token, note, calls < MAX_CALLS and note.calls .. pack_call(ask.call) or '')
  end
  each_held(note, ask.holder, function(id, r, raw)
    reply.add(out, id, raw, r, reply.HOLDER)
    n = n + 1
  end)
  return n
end

-- The note of a grant without any, as a check makes it of the leases that it finds: by its first
-- fence, since the others follow one by one. Its session and its calls are not known.
local GAP, MOST = '-', 1000 -- an id that no task has; and how many ids a note has at most

-- Writes the note of a grant by what is still held of it.
local function rewrite(collector_id, token_, digest, note)
  local ids, n = grant.ids(note.ids), 0
  for i, id in ipairs(ids) do
    if call('GETRANGE', key.task(id), 0, 16) == pack('>BI8', record.MARK, note.fence + i - 1) .. digest then n = n + 1 end
  end
  local name = key.held(collector_id)
  call('HDEL', name, '/' .. token_, token_, token_ .. '/')
  if n == 0 then return end
  local packed = pack_note(note.session, note.calls, note.fence, concat(ids, ' '), note.turns)
  if #ids == 1 then call('HSET', name, '/' .. token_, packed)
  else call('HSET', name, token_, decimal(n), token_ .. '/', packed) end
end

-- The note of a grant, nil for none that can be read.
local function read_note(collector_id, token_)
  local ok, note = pcall(grant.read, grant.find(collector_id, token_))
  return ok and note or nil
end

-- Whether a leased task is in the note of its grant, the note, and what it is found by.
local function look_up(id, r)
  local at = find(r.holder, '/', 1, true)
  if not at then return true end
  local collector_id, token_, fence = sub(r.holder, 1, at - 1), sub(r.holder, at + 1), parse('>I8', r.digest, 2)
  local note = read_note(collector_id, token_)
  local ids = note and grant.ids(note.ids) or {}
  return note and ids[fence - note.fence + 1] == id, note, ids, collector_id, token_, fence
end

-- Adds a leased task to the note of its grant, which is made if there is none. That is not
-- given back: its calls are not known.
function grant.join(id, r, session)
  local has, note, ids, collector_id, token_, fence = look_up(id, r)
  if has then return end
  if not note or fence < note.fence - MOST or fence > note.fence + MOST then
    note, ids = { session = session, calls = '', fence = fence, turns = '' }, {}
  end
  while fence < note.fence do
    table.insert(ids, 1, GAP)
    note.fence = note.fence - 1
  end
  for i = #ids + 1, fence - note.fence do ids[i] = GAP end
  ids[fence - note.fence + 1] = id
  note.ids = concat(ids, ' ')
  rewrite(collector_id, token_, sub(r.digest, 10), note)
end

-- Checks that a leased task is in the note of its grant.
function grant.check(id, r)
  if look_up(id, r) then return end
  if check.found('grant', id, 'it is leased, and not in the note of its grant') then grant.join(id, r, '') end
end

-- Checks notes of grants: each counts what is still held, of which there is some.
--
-- ARGV     whether to repair (0, 1); collector; per note the client token and the holder's digest
-- Returns  findings
-- Cost     O(1) a task of the notes; at most 10 notes, of 100 tasks each
function scripts.checkgrants()
  check.begin(ARGV[1])
  for i = 3, #ARGV, 2 do
    local token_, digest, held = ARGV[i], ARGV[i + 1], 0
    local fields = call('HMGET', key.held(ARGV[2]), '/' .. token_, token_ .. '/', token_)
    local note = read_note(ARGV[2], token_)
    if note then each_held(note, digest, function() held = held + 1 end) end
    local whole = fields[1] and not fields[2] and not fields[3] and held == 1 or not fields[1] and fields[2] and tonumber(fields[3] or nil) == held and held > 0
    if (fields[1] or fields[2] or fields[3]) and not whole
        and check.found('grant', ARGV[2] .. '/' .. token_, 'its note does not count the ' .. held .. ' tasks that are held of it') then
      if note then rewrite(ARGV[2], token_, digest, note) else call('HDEL', key.held(ARGV[2]), '/' .. token_, token_, token_ .. '/') end
    end
  end
  return check.finish()
end

-- Returns a task of a grant as if it had never been granted; one with a cancel request,
-- other than by a hold, ends CANCELED.
local function return_task(id, r, holder)
  local s, q = source.get(r.source), queue.get(r.queue)
  lease.leave(id, r.source, r.queue, holder, r.digest, true)
  source.count(s, 'leased', -1)
  q.in_flight, q.dirty, q.touched = q.in_flight - 1, true, true
  local canceled = r.cancel ~= 0 and r.cancel ~= record.CANCEL_HELD
  record.end_lease(r)
  r.revision, r.attempt = r.revision + 1, max(r.attempt, 1) - 1
  if canceled then
    r.state, r.again, r.settled_at = record.CANCELED, false, now
    task.settle(s, id, r, s.deleted and DAY or s.remember)
    return
  end
  r.state = record.WAITING
  record.write(id, r)
  task.enter(id, r)
end

-- Removes a call from the calls of a grant. With the last call, the tasks that are still
-- held return as if they had never been granted (dispatch.Claims.GiveBack). A turn's delay
-- is taken back with all its tasks: where one of them was reported, a request was made.
--
-- ARGV     collector, client token, the holder's digest (8 bytes), call
-- Returns  how many tasks were given back
-- Cost     O(log n) a task
function scripts.giveback()
  local holder, token_ = ARGV[1], ARGV[2]
  local note = grant.read(grant.find(holder, token_))
  if not note then return 0 end
  local others = without(note.calls, ARGV[4])
  if others ~= '' then
    if others then note_calls(holder, token_, note, others) end
    return 0
  end
  local given, back, at = 0, {}, 1
  each_held(note, ARGV[3], function(id, r, _, i)
    return_task(id, r, holder .. '/' .. token_)
    given, back[i] = given + 1, true
  end)
  while at <= #note.turns do
    local name, from, to, first, n
    name, from, to, first, n, at = parse(TURN, note.turns, at)
    local q, all = queue.get(name), true
    for k = first, first + n - 1 do all = all and back[k] end
    if all and q.next_grant == to then q.next_grant, q.dirty, q.touched = from, true, true end
  end
  finish(true)
  call('HDEL', key.held(holder), '/' .. token_, token_, token_ .. '/') -- also where a record was lost
  return given
end
