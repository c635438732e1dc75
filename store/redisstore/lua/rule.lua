-- Keeps or removes a queue rule in shard 0, under a new version of all rules.
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     pattern, the most rules there may be; and to keep it: the name its
--          settings are filed under, the settings (prelude/settings.lua), the
--          rule (JSON)
-- Returns  the new version (0 = no such rule, -1 = too many), and what changed in
--          the settings: name and settings ('' = removed), flat
-- Cost     O(1)
local pattern, limit, name, packed, rule = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local rules, settings, changes = P .. 'rules', P .. 'settings', {}
local old = call('HGET', rules, pattern)
if not name and not old then return { 0 } end
if name and not old and call('HLEN', rules) >= limit then return { -1 } end

-- Of several rules that file settings under one name the last written holds.
local old_name = old and string.match(old, '^([^\n]*)\n')
if old_name and old_name ~= name then
  local filed = call('HGET', settings, old_name)
  if filed and string.match(filed, '(%S+)$') == pattern then
    call('HDEL', settings, old_name)
    changes = { old_name, '' }
  end
end
if name then
  call('HSET', rules, pattern, name .. '\n' .. rule)
  call('HSET', settings, name, packed)
  changes[#changes + 1] = name
  changes[#changes + 1] = packed
else
  call('HDEL', rules, pattern)
end
return { call('HINCRBY', SHARD, 'rules', 1), unpack(changes) }
