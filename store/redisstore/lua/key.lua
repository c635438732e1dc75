-- The names of keys, as internal/key has them; SHAPE.md says what each holds.
function key.task(id) return P .. 't:' .. id end
function key.details(id) return P .. 'd:' .. id end
function key.history(id) return P .. 'h:' .. id end
function key.lock(id) return P .. 'lock:' .. id end
function key.held(collector) return P .. 'held:' .. collector end
function key.keep(collector) return P .. 'keep:' .. collector end
function key.binding(collector) return P .. 'bind:' .. collector end
function key.version(of) return P .. 'version:' .. of end
function key.picks(pool_name) return P .. 'picks:' .. pool_name end
function key.uid(uid) return P .. 'uid:' .. uid end
function key.source(n) return P .. 'src:' .. n end
function key.counts(n) return P .. 'counts:' .. n end
function key.lanes(n) return P .. 'lanes:' .. n end
function key.drop(n) return P .. 'drop:' .. n end
function key.source_open(n) return P .. 'so:' .. n end
function key.source_wait(n) return P .. 'sw:' .. n end
function key.queue(name) return P .. 'q:' .. name end
function key.cause(name) return P .. 'cause:' .. name end
function key.ends(name) return P .. 'ends:' .. name end

-- Of a lane by its name, "<source>:<queue>".
function key.lane(name) return P .. 'l:' .. name end
function key.set(name) return P .. 's:' .. name end
function key.dead(name) return P .. 'ld:' .. name end
function key.canceled(name) return P .. 'lc:' .. name end

-- Of a queue in a pool.
function key.queue_open(a) return P .. 'qo:' .. a.pool .. ':' .. a.queue end
function key.queue_wait(a) return P .. 'qw:' .. a.pool .. ':' .. a.queue end
function key.aside(a) return P .. 'qa:' .. a.pool .. ':' .. a.queue end
function key.pool_open(name) return P .. 'po:' .. name end
function key.pool_wait(name) return P .. 'pw:' .. name end

function key.begin()
  key.leases, key.pools, key.queues, key.idle = P .. 'leases', P .. 'pools', P .. 'queues', P .. 'idle'
  key.forget, key.kept, key.closed = P .. 'forget', P .. 'kept', P .. 'closed'
  key.named, key.filtered, key.keeper, key.acked = P .. 'named', P .. 'filtered', P .. 'keeper', P .. 'acked'
end
