-- Ends all sessions of a collector but one in this shard, and gives some of the
-- tasks that they hold (dispatch.Leases.EndSession): what a step of a scan over
-- all that the collector holds has met. Nothing, where that one was replaced.
--
-- KEYS[1]  the shard key
-- ARGV     collector, the session to keep, limit, whether this is the collector's
--          home shard and nothing was found before (0, 1), cursor ('0' = begin)
-- Returns  the cursor that goes on ('0' = the end), tasks
-- Cost     O(log n) a lease met: about 100, or the 128 that Redis keeps in one piece
--
-- uses: collector
local SCAN = 100
local collector, keep, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
if was_replaced(collector, keep) then return { '0', {} } end
call('SET', keep_key(collector), keep)
expire_at(keep_key(collector), now + DAY)
local step = call('HSCAN', held_key(collector), ARGV[5], 'COUNT', SCAN)
local cursor, held, found, stale = step[1], step[2], {}, {}
for i = 1, #held, 2 do
  local id = held[i]
  if held[i + 1] ~= keep and #found < limit then
    local raw = call('GET', task_key(id))
    local r = read_record(raw)
    if r and r.state == LEASED and collector_of(r) == collector then
      found[#found + 1] = task_reply(id, raw, r, NO_DETAILS)
    else
      stale[#stale + 1] = id
    end
  end
end
call_for_all('HDEL', held_key(collector), stale)
if ARGV[4] == '1' and cursor == '0' and #found == 0 then session_ended(collector, keep) end
return { cursor, found }
