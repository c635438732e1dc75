-- Updates a shard's copy of a hash of shard 0 from one version to another: the settings of
-- queues, or the ends of the holds on them.
--
-- KEYS[1]  the shard key
-- ARGV     the hash, the field with its version; the version it must have ('*' = replace
--          the hash by the staged one), the new version; then the key of the staged hash
--          ('' = it is empty), or else name and value ('' = removed), flat
-- Returns  1 if the shard has that version or a newer one, else 0
-- Cost     O(1) a change
local key, field, from, to = P .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local have = tonumber(call('HGET', SHARD, field) or '0')
if have >= to then
  if from == '*' and ARGV[5] ~= '' then call('UNLINK', ARGV[5]) end
  return 1
end
if from == '*' then
  call('UNLINK', key)
  if ARGV[5] ~= '' then
    call('RENAME', ARGV[5], key)
    call('PERSIST', key)
  end
elseif tonumber(from) ~= have then
  return 0
else
  for i = 5, #ARGV, 2 do
    if ARGV[i + 1] == '' then call('HDEL', key, ARGV[i]) else call('HSET', key, ARGV[i], ARGV[i + 1]) end
  end
end
call('HSET', SHARD, field, ARGV[4])
return 1
