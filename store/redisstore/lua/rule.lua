-- The settings of a queue: those filed under the most specific name, in the order of
-- dispatch.SettingsNames. And until when holds stop it: the latest end of those on any of
-- these names. A queue keeps the name and that end, with the version of rules and holds at
-- which they were found.
local DEFAULT = { delay = 1000, in_flight = 1, factor = 0, max_delay = 0, max_block = DAY, name = '' }

local filed -- by hash, what is filed under the names that this call has looked up, false = nothing
local settings -- by name, those that this call has read

function rule.begin() filed, settings = { settings = {}, heldqueues = {} }, { [''] = DEFAULT } end

-- The names under which settings of a queue may be filed, the most specific first.
local function names_of(name)
  local names, host = { name }, name
  local bare = match(name, '^([^:%[%]]*):[^:%[%]]*$') or match(name, '^%[([^%[%]]*)%]:[^:%[%]]*$')
  if bare then
    host = bare
    names[2] = host
  end
  while true do
    local dot = find(host, '.', 1, true)
    if not dot then break end
    host = sub(host, dot + 1)
    names[#names + 1] = '*.' .. host
  end
  names[#names + 1] = '*'
  return names
end

local function look_up(hash, names)
  local found, unknown = filed[hash], {}
  for _, name in ipairs(names) do
    if found[name] == nil then unknown[#unknown + 1] = name end
  end
  if #unknown == 0 then return found end
  for i, value in ipairs(call('HMGET', P .. hash, unpack(unknown))) do found[unknown[i]] = value end
  return found
end

-- The settings under a name, packed "<delay> <in flight> <factor> <max delay> <max block>
-- <pattern>"; nil for none.
function rule.filed_under(name)
  local s = settings[name]
  if s then return s end
  local packed = shard.filed(name)
  if not packed then
    packed = look_up('settings', { name })[name]
    if not packed then return nil end
    shard.note_filed(name, packed)
  end
  local delay, in_flight, factor, max_delay, max_block = match(packed, '^(%S+) (%S+) (%S+) (%S+) (%S+)')
  s = {
    delay = tonumber(delay), in_flight = tonumber(in_flight), factor = tonumber(factor),
    max_delay = tonumber(max_delay), max_block = tonumber(max_block), name = name,
  }
  settings[name] = s
  return s
end

local function resolve(q)
  local names = names_of(q.name)
  look_up('settings', names)
  q.pattern, q.held, q.version, q.dirty = '', 0, shard.settings_version(), true
  for _, name in ipairs(names) do
    if rule.filed_under(name) then
      q.pattern = name
      break
    end
  end
  if shard.holds == 0 then return end
  local found = look_up('heldqueues', names)
  for _, name in ipairs(names) do
    if found[name] then q.held = max(q.held, until_(found[name])) end
  end
end

-- The settings of a queue, resolved once for each version of rules and holds.
function rule.settings(q)
  local s = q.settings
  if s then return s end
  if q.version ~= shard.settings_version() then resolve(q) end
  s = rule.filed_under(q.pattern)
  if not s then -- its rule was lost
    resolve(q)
    s = rule.filed_under(q.pattern)
  end
  q.settings = s
  return s
end

-- The settings of the first rule by pattern that files under a name; nil for none.
local function settings_by_rules(rules, name)
  local all, first, found = call('HGETALL', rules), nil, nil
  for i = 1, #all, 2 do
    local its, packed = match(all[i + 1], '^([^\n]*)\n([^\n]*)\n')
    if its == name and (not first or before(all[i], first)) then first, found = all[i], packed end
  end
  return found
end

-- Stores or removes a queue rule in shard 0, under the next version of all rules, if they
-- still have the caller's version (dispatch.Queues.PutRule).
--
-- ARGV     pattern, the caller's version; to store it also: the limit of rules, the name
--          of its settings, the settings, the rule (JSON)
-- Returns  the new version (-1 = no such rule, -2 = too many, -3 = the rules have
--          another version), whether the call is a repeat (its changes are no longer
--          known), and the changes of settings, flat: name and settings ('' = removed)
-- Cost     O(1); O(n) of all rules where settings are removed
function scripts.rule()
  local pattern, from, limit, name, packed, text = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
  local rules, hash, changes = P .. 'rules', P .. 'settings', {}
  local filed = name and concat({ name, packed, text }, '\n')
  local old, version = call('HGET', rules, pattern), tonumber(call('GET', key.version('rules')) or '0')
  if version ~= from then
    -- As this very call left them?
    if version == from + 1 and old == (name and filed or false) then return { version, 1 } end
    return { -3 }
  end
  if not name and not old then return { -1 } end
  if name and not old and call('HLEN', rules) >= limit then return { -2 } end

  if name then call('HSET', rules, pattern, filed) else call('HDEL', rules, pattern) end
  -- Of several rules that file settings under one name the last written holds; without it the first of the others.
  local old_name = old and match(old, '^([^\n]*)\n')
  if old_name and old_name ~= name then
    local kept = call('HGET', hash, old_name)
    if kept and match(kept, '(%S+)$') == pattern then
      local other = settings_by_rules(rules, old_name)
      if other then call('HSET', hash, old_name, other) else call('HDEL', hash, old_name) end
      changes = { old_name, other or '' }
    end
  end
  if name then
    call('HSET', hash, name, packed)
    changes[#changes + 1], changes[#changes + 2] = name, packed
  end
  return { call('INCR', key.version('rules')), 0, unpack(changes) }
end
