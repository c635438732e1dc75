-- Changes the settings of a shard from one version of the rules to another.
--
-- KEYS[1]  the shard key
-- ARGV     the version it must have ('*' = replace all of it by what was staged),
--          the new version, and name and settings ('' = removed), flat
-- Returns  1 when the shard has that version or a newer one, else 0
-- Cost     O(1) a change
local have, to = tonumber(call('HGET', SHARD, 'rules') or '0'), tonumber(ARGV[2])
if have >= to then return 1 end
local staged = SETTINGS .. ':staged'
if ARGV[1] == '*' then
  call('DEL', SETTINGS)
  if call('EXISTS', staged) == 1 then call('RENAME', staged, SETTINGS) end
elseif tonumber(ARGV[1]) ~= have then
  return 0
end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then call('HDEL', SETTINGS, ARGV[i]) else call('HSET', SETTINGS, ARGV[i], ARGV[i + 1]) end
end
call('HSET', SHARD, 'rules', ARGV[2])
return 1
