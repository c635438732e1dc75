-- Ends the block that failures have caused, and the doubling of its length
-- (dispatch.Queues.Unblock).
--
-- KEYS[1]  the shard key
-- ARGV     queue
-- Returns  1, or 0 if there was neither
-- Cost     O(log n)
local q = get_queue(ARGV[1])
local blocked = q.block > now or q.step > 0
q.block, q.step, q.began = 0, 0, 0
q.dirty, q.touched = true, true
finish(true)
return blocked and 1 or 0
