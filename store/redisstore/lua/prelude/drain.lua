-- The first write of a script decides whether Redis runs it when its memory is
-- full. HDEL is always allowed, and then so is the rest: work under way is
-- finished and handed out, and only submits are refused.
call('HDEL', SHARD, '-')
