-- Reads tasks by id.
--
-- KEYS[1]  the shard key
-- ARGV     whether with details (0, 1), ids
-- Returns  now, and per id: a task (prelude/task.lua), or false
-- Cost     O(1) a task
--
-- flags: no-writes
local out, with = {}, ARGV[1] == '1' and WITH.all or WITH.nothing
for i = 2, #ARGV do
  local raw = call('GET', task_key(ARGV[i]))
  local r = read_record(raw)
  out[#out + 1] = r and task_reply(ARGV[i], raw, r, with) or false
end
return { now, out }
