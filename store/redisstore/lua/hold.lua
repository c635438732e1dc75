-- Holds, in shard 0; and copies of what shards share with it.

-- Changes the holds in shard 0, with the ends of the holds on queues, under a new version
-- of all holds, if they still have the caller's version (dispatch.Holds.PutHolds).
--
-- ARGV     the caller's version, an id that is unique to this call, the limit of holds,
--          the number of changes; per change the key and the hold (JSON; '' = lifted);
--          per queue or pattern the end of its holds in ms ('' = no hold)
-- Returns  the new version, -1 = the holds have another version, -2 = too many
-- Cost     O(1) a hold
function scripts.hold()
  local from, by, limit, changes = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), 4 + 2 * ARGV[4]
  local holds, f = P .. 'holds', call('MGET', key.version('holds'), P .. 'holdsby')
  local version, has, n = tonumber(f[1] or 0), {}, call('HLEN', P .. 'holds')
  if version ~= from then return f[2] == by and version or -1 end
  for i = 5, changes, 2 do
    local name, old = ARGV[i], has[ARGV[i]]
    if old == nil then old = call('HEXISTS', holds, name) == 1 end
    has[name] = ARGV[i + 1] ~= ''
    n = n + (has[name] and 1 or 0) - (old and 1 or 0)
  end
  if n > limit then return -2 end
  for i = 5, #ARGV, 2 do
    local of, name, value = i <= changes and holds or P .. 'heldqueues', ARGV[i], ARGV[i + 1]
    if value == '' then call('HDEL', of, name) else call('HSET', of, name, value) end
  end
  version = max(from + 1, now)
  call('MSET', key.version('holds'), decimal(version), P .. 'holdsby', by)
  return version
end

-- Reads the holds in shard 0 (dispatch.Holds.Holds).
--
-- ARGV     the version that the caller has
-- Returns  now, their version, and each of them (JSON); no holds if the caller has that version
-- Cost     O(holds)
-- flags: no-writes
function scripts.holds()
  local version = call('GET', key.version('holds')) or '0'
  return { now, tonumber(version), version ~= ARGV[1] and call('HVALS', P .. 'holds') or {} }
end

-- Updates a shard's copy of a hash of shard 0 from one version to another: the settings of
-- queues, or the ends of the holds on them.
--
-- ARGV     the hash, the name of its version; the version it must have ('*' = replace
--          the hash by the staged one), the new version; then the key of the staged hash
--          ('' = it is empty), or else name and value ('' = removed), flat
-- Returns  1 if the shard has that version or a newer one, else 0
-- Cost     O(1) a change
function scripts.settings()
  local copy, version, from, to = P .. ARGV[1], key.version(ARGV[2]), ARGV[3], tonumber(ARGV[4])
  local have = tonumber(call('GET', version) or '0')
  if have >= to then
    if from == '*' and ARGV[5] ~= '' then call('UNLINK', ARGV[5]) end
    return 1
  end
  if from == '*' then
    call('UNLINK', copy)
    if ARGV[5] ~= '' then
      call('RENAME', ARGV[5], copy)
      call('PERSIST', copy)
    end
  elseif tonumber(from) ~= have then
    return 0
  else
    for i = 5, #ARGV, 2 do
      if ARGV[i + 1] == '' then call('HDEL', copy, ARGV[i]) else call('HSET', copy, ARGV[i], ARGV[i + 1]) end
    end
  end
  call('SET', version, ARGV[4])
  return 1
end
