-- Sets or lifts an operator's block or pause of a queue.
--
-- KEYS[1]  the shard key
-- ARGV     queue, 'block' or 'pause'; to set it: until in ms, the gate (JSON); to
--          lift it: whether the automatic block is lifted too (0, 1)
-- Returns  1, or 0 when there is no such queue to lift one of
-- Cost     O(log n)
local q = get_queue(ARGV[1])
if not ARGV[4] and not q.exists then return 0 end
local held = q.gate ~= '' and cmsgpack.unpack(q.gate) or { 0, '', 0, '' }
local at = ARGV[2] == 'pause' and 3 or 1
if ARGV[4] then
  held[at], held[at + 1] = until_(ARGV[3]), ARGV[4]
else
  held[at], held[at + 1] = 0, ''
  if ARGV[3] == '1' then q.block, q.step = 0, 0 end
end
q.operator = max(held[1], held[3])
q.gate = q.operator > 0 and cmsgpack.pack(held) or ''
q.dirty, q.touched = true, true
finish(true)
return 1
