-- Ends all sessions of a collector but one in this shard, and gives the tasks
-- that they hold (dispatch.Leases.EndSession).
--
-- KEYS[1]  the shard key
-- ARGV     collector, the session to keep, limit, whether this is the collector's
--          home shard (0, 1)
-- Returns  tasks, ascending by id
-- Cost     O(leases held by the collector)
--
-- uses: base drain keys record counts lane task collector
local collector, keep, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
call('SET', keep_key(collector), keep)
expire_at(keep_key(collector), now + DAY)
if ARGV[4] == '1' then session_ended(collector, keep) end
local held, found, stale = call('HGETALL', held_key(collector)), {}, {}
for i = 1, #held, 2 do
  local id = held[i]
  if held[i + 1] ~= keep then
    local raw = call('GET', task_key(id))
    local r = read_record(raw)
    local holder
    if r and r.state == LEASED then holder = holder_of(r) end
    if holder == collector then
      found[#found + 1] = { id = id, raw = raw, r = r }
    else
      stale[#stale + 1] = id
    end
  end
end
for _, id in ipairs(stale) do call('HDEL', held_key(collector), id) end
table.sort(found, function(a, b) return a.id < b.id end)
local out = {}
for i = 1, min(limit, #found) do out[i] = task_reply(found[i].id, found[i].raw, found[i].r, NO_DETAILS) end
return out
