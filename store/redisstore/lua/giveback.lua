-- Returns what is still held of a grant as if it had never been granted.
--
-- KEYS[1]  the shard key
-- ARGV     collector, client token, the holder's digest (8 bytes), call
-- Returns  how many tasks were given back
-- Cost     O(log n) a task
--
-- uses: base drain keys record counts settings lane queue task grant finish
local note = read_grant(ARGV[1], ARGV[2])
if not note or note[1] ~= ARGV[4] then return 0 end
local given, back = 0, {}
each_held(note, ARGV[3], function(id, r, _, i)
  local l = get_lane(r.lane)
  local q = get_queue(l.queue)
  leave_leased(l, id, r)
  end_lease(r)
  r.state, r.revision = WAITING, r.revision + 1
  r.attempt = max(r.attempt, 1) - 1
  write_record(id, r)
  enter_waiting(l, id, r)
  q.in_flight = q.in_flight - 1
  given, back[i] = given + 1, true
end)

-- A turn's delay is taken back with all its tasks: where one of them was
-- reported, a request was made.
local moved = note[4]
for i = 1, #moved, 5 do
  local q, all = get_queue(moved[i]), true
  for k = moved[i + 3], moved[i + 3] + moved[i + 4] - 1 do all = all and back[k] end
  if all and q.next_grant == tonumber(moved[i + 2]) then
    q.next_grant, q.dirty, q.touched = tonumber(moved[i + 1]), true, true
  end
end
call('DEL', grant_key(ARGV[1], ARGV[2]))
finish(true)
return given
