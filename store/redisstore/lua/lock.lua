-- Locks, and orphans: ready tasks whose lock still stands, as after a failover.

-- Whether the lock stands that has so long to go, by PTTL: -1 is one without an end. And
-- how long until an orphan of that lock is looked at again (dispatch.OrphanLook).
function lock.stands(ttl) return ttl == -1 or ttl > 0 end
function lock.next_look(ttl) return (ttl < 0 or ttl > 30000) and 30000 or ttl end

-- The lock that keeps a waiting task from being granted: when it ends, 0 = never, and its
-- value, cut to dispatch.MaxLockValue bytes; of one that is gone, when that will be seen.
-- nil where there is none. (MGET, since somebody may have set it to what is no string.)
function lock.of(id, r)
  local ttl = call('PTTL', key.lock(id))
  if lock.stands(ttl) then
    return decimal(ttl > 0 and now + ttl or 0) .. ' ' .. sub(call('MGET', key.lock(id))[1] or '?', 1, 512)
  end
  local look = call('ZSCORE', key.leases, lease.orphan(id, r.source, r.queue))
  return look and decimal(tonumber(look)) .. ' ' or nil
end

-- Sets a lock. When another still stands: false, and when to look again. (GET spares the
-- table that Lua makes of an answer OK.)
function lock.set(name, value, deadline)
  if not redis.pcall('SET', name, value, 'NX', 'GET', 'PXAT', deadline) then return true end
  local ttl = call('PTTL', name)
  if ttl == 0 then
    call('SET', name, value, 'PXAT', deadline)
    return true
  end
  return false, lock.next_look(ttl)
end

-- Leases that end in a call: members of the lease index; locks and lease tokens, and what
-- was read of a lock already; how many each holder had, and a digest of each.
local members, locks, tokens, values, held, digests

function lock.begin() members, locks, tokens, values, held, digests = {}, {}, {}, {}, {}, {} end

-- Ends a lease in all indexes; what becomes of the record and of the queue is the caller's.
-- A lease that is given back is as if it had never been granted (back). value is what the
-- lock was read as, false for none; nil if it was not read.
function lease.leave(id, n, queue_name, holder, digest, back, value)
  local k = #members + 1
  members[k], locks[k] = lease.member(id, n, queue_name), key.lock(id)
  tokens[k], values[k] = format('%s/%d', holder, (parse('>I8', digest, 2))), value
  held[holder] = (held[holder] or 0) + 1
  if not back then digests[holder] = digest end
end

-- Deletes the locks of leases: where another value than the lease token stands, somebody
-- else has set that lock.
local function delete_locks()
  if next(values) == nil then values = call('MGET', unpack(locks)) end -- a call reads all or none
  for i = 1, #locks do
    if values[i] == tokens[i] then delete(locks[i]) end
  end
end

-- Writes the leases that have ended, each kind at once.
function lease.flush()
  if not members[1] then return end
  delete_locks()
  call_for_all('ZREM', key.leases, members)
  local over = {}
  for holder, n in pairs(held) do
    if grant.release(holder, n) and digests[holder] then over[#over + 1] = sub(digests[holder], -8) end
  end
  if #over > 0 then token.note_used(over) end
  lock.begin()
end
