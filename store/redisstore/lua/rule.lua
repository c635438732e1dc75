-- Stores or removes a queue rule in shard 0, under the next version of all rules, if they
-- still have the caller's version (dispatch.Queues.PutRule).
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     pattern, the caller's version; to store it also: the limit of rules, the name
--          of its settings, the settings (prelude/settings.lua), the rule (JSON)
-- Returns  the new version (-1 = no such rule, -2 = too many, -3 = the rules have
--          another version), whether the call is a repeat (its changes are no longer
--          known), and the changes of settings, flat: name and settings ('' = removed)
-- Cost     O(1)
local pattern, from, limit, name, packed, rule = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local rules, settings, changes = P .. 'rules', P .. 'settings', {}
local old, version = call('HGET', rules, pattern), tonumber(call('HGET', SHARD, 'rules') or '0')
if version ~= from then
  -- As this very call left them?
  if version == from + 1 and old == (name and name .. '\n' .. rule or false) then return { version, 1 } end
  return { -3 }
end
if not name and not old then return { -1 } end
if name and not old and call('HLEN', rules) >= limit then return { -2 } end

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
return { call('HINCRBY', SHARD, 'rules', 1), 0, unpack(changes) }
