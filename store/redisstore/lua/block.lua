-- Sets or lifts an operator's block of a queue.
--
-- KEYS[1]  the shard key
-- ARGV     queue; to set it: until in ms, the gate (JSON); to lift it: whether
--          the automatic block is lifted too (0, 1)
-- Returns  1, or 0 when there is no such queue to lift a block of
-- Cost     O(log n)
local q = get_queue(ARGV[1])
if ARGV[3] then
  q.operator, q.gate = until_(ARGV[2]), ARGV[3]
else
  if not q.exists then return 0 end
  q.operator, q.gate = 0, ''
  if ARGV[2] == '1' then q.block, q.step = 0, 0 end
end
q.dirty, q.touched = true, true
finish(true)
return 1
