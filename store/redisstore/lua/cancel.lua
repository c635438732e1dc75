-- Marks leased tasks so that their holders are told to stop.
--
-- KEYS[1]  the shard key
-- ARGV     reason, ids
-- Returns  how many were marked
-- Cost     3 commands a task; at most 100
local reason, marked = tonumber(ARGV[1]), 0
for i = 2, #ARGV do
  local r = read_record(call('GET', task_key(ARGV[i])))
  if r and r.state == LEASED and r.cancel ~= reason then
    r.cancel, r.revision = reason, r.revision + 1
    write_record(ARGV[i], r)
    marked = marked + 1
  end
end
return marked
