-- For scripts that write in any case: they run when Redis is full, too.
run_when_full()
