-- Reads the lanes with due tasks, of a source or of a queue (dispatch.Tasks.DueLanes).
--
-- KEYS[1]  the shard key
-- ARGV     'source' and its uid, or 'queue' and its name; limit of lanes to read, limit of
--          lanes to return
-- Returns  number of lanes, number read, number of those with due tasks; due time and id
--          ('' = none) of the first task in the other lanes that were read; then flat, per
--          returned lane: number of due tasks, id of the first one
-- Cost     O(log n) a lane read
--
-- flags: no-writes
local set = ARGV[1] == 'source' and lanes_key(ARGV[2]) or queue_lanes_key(ARGV[2])
local found, most = call('ZRANGE', set, 0, ARGV[3] - 1, 'WITHSCORES'), 5 + 2 * tonumber(ARGV[4])
local out, due_lanes = { call('ZCARD', set), #found / 2, 0, 0, '' }, 0
local now_ends, next_at, next_lane, next_task = LATER_FROM + now * 32 + 32, LEASED_FROM, nil, nil
for i = 2, #found, 2 do
  local n = found[i]
  local first = call('ZRANGE', tasks_key(n), 0, 0, 'WITHSCORES')
  local at = tonumber(first[2] or LEASED_FROM)
  if at < now_ends then
    due_lanes = due_lanes + 1
    if #out < most then
      out[#out + 1] = call('ZCOUNT', tasks_key(n), '-inf', '(' .. decimal(now_ends))
      out[#out + 1] = id_of(get_lane(n), first[1])
    end
  elseif at < next_at then
    next_at, next_lane, next_task = at, n, first[1]
  end
end
out[3] = due_lanes
if next_lane then out[4], out[5] = decimal(floor((next_at - LATER_FROM) / 32)), id_of(get_lane(next_lane), next_task) end
return out
