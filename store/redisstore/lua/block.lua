-- Sets or lifts a hold of a queue.
--
-- KEYS[1]  the shard key
-- ARGV     queue, 'block', 'pause' or, to lift it, 'waggle' for the automatic block; to
--          set it: until in ms, the gate (JSON)
-- Returns  1, or 0 when there was none to lift
-- Cost     O(log n)
local q, name = get_queue(ARGV[1]), ARGV[2]
if not ARGV[4] and not q.exists then return 0 end
local out = 1
if name == 'waggle' then
  out = (q.block > now or q.step > 0) and 1 or 0
  q.block, q.step = 0, 0
else
  local held = q.gate ~= '' and cmsgpack.unpack(q.gate) or { 0, '', 0, '' }
  local at = name == 'pause' and 3 or 1
  if ARGV[4] then
    held[at], held[at + 1] = until_(ARGV[3]), ARGV[4]
  else
    out = held[at] > now and 1 or 0
    held[at], held[at + 1] = 0, ''
  end
  q.operator = max(held[1], held[3])
  q.gate = q.operator > 0 and cmsgpack.pack(held) or ''
end
q.dirty, q.touched = true, true
finish(true)
return out
