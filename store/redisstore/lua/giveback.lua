-- Removes a call from the calls of a grant. With the last call, the tasks that are still
-- held return as if they had never been granted; a task with a cancel request, other than
-- by a hold, ends CANCELED (dispatch.Claims.GiveBack).
--
-- KEYS[1]  the shard key
-- ARGV     collector, client token, the holder's digest (8 bytes), call
-- Returns  how many tasks were given back
-- Cost     O(log n) a task
--
-- uses: ids grant
local collector, token, holder = ARGV[1], ARGV[2], ARGV[1] .. '/' .. ARGV[2]
local note = grants.read(grants.find(collector, token))
if not note or not grants.give_back(collector, token, note, ARGV[4]) then return 0 end
local given, back = 0, {}
grants.each_held(note, ARGV[3], function(id, r, _, i)
  local l = get_lane(r.lane)
  local q = get_queue(l.queue)
  local left, locks, held = leave_leased(l)
  local n = #locks
  left[#left + 1], held[holder] = suffix_of(id), (held[holder] or 0) + 1
  locks[n + 1], locks[n + 2], locks[n + 3] = lock_key(id), holder, r.digest
  end_lease(r)
  r.revision, r.attempt = r.revision + 1, max(r.attempt, 1) - 1
  if r.cancel ~= 0 and r.cancel ~= CANCEL_HELD then
    local s = get_source(l.uid)
    r.state, r.cancel, r.again, r.settled_at = CANCELED, 0, false, now
    enter_settled(l, id, r, s.deleted and DAY or s.remember)
    outstanding(l.uid, r, -1)
  else
    r.state, r.cancel = WAITING, 0
    write_record(id, r)
    enter_waiting(l, id, r)
  end
  q.in_flight, q.dirty = q.in_flight - 1, true
  given, back[i] = given + 1, true
end)

-- A turn's delay is taken back with all its tasks: where one of them was
-- reported, a request was made.
grants.each_turn(note, function(queue, before, after, first, n)
  local q, all = get_queue(queue), true
  for k = first, first + n - 1 do all = all and back[k] end
  if all and q.next_grant == after then q.next_grant, q.dirty, q.touched = before, true, true end
end)
finish(true)
call('HDEL', held_key(collector), '/' .. token, token, token .. '/') -- also where a record was lost
return given
