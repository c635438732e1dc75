-- The settings of a queue: those filed under the most specific name, in the order of
-- dispatch.SettingsNames. And until when holds stop it: the latest end of those on any of
-- these names.
local settings_read -- by this call, as they are packed, or by name
-- By hash, what is filed under the names that this call has looked up, false = nothing.
local filed

-- The version of what queues keep of rules and holds: both of theirs only rise.
local function settings_version()
  if not rules_version then
    local found = call('HMGET', SHARD, 'rules', 'holds')
    rules_version, holds_version = tonumber(found[1] or 0), tonumber(found[2] or 0)
  end
  return rules_version + holds_version
end

local settings_of
do
  local DEFAULT_SETTINGS = { delay = 1000, in_flight = 1, factor = 0, max_delay = 0, max_block = DAY, name = '' }

  -- What a queue keeps of its settings, so that they are looked up only after rules or
  -- holds have changed.
  local SETTINGS_FIELDS = { 'delay', 'in_flight', 'factor', 'max_delay', 'max_block', 'name' }

  local function pack_settings(s)
    local version = settings_version()
    if s.packed and s.version == version then return s.packed end
    local packed = { version }
    for i, field in ipairs(SETTINGS_FIELDS) do packed[i + 1] = s[field] end
    s.packed, s.version = cmsgpack.pack(packed), version
    return s.packed
  end

  local function keep(by, s)
    settings_read = settings_read or {}
    settings_read[by] = s
    return s
  end

  local function unpack_settings(packed)
    local p = cmsgpack.unpack(packed)
    local s = { packed = packed, version = p[1] }
    for i, field in ipairs(SETTINGS_FIELDS) do s[field] = p[i + 1] end
    return s
  end

  -- The settings that were unpacked last, and read last, by any call: many queues have
  -- the same.
  local last, last_read = {}, {}

  local function cached_settings(packed)
    if settings_version() == 0 then return DEFAULT_SETTINGS end
    if not packed or packed == '' then return nil end
    local s = last.packed == packed and last or settings_read and settings_read[packed]
    if not s then
      s = unpack_settings(packed)
      last = keep(packed, s)
    end
    return s.version == settings_version() and s or nil
  end

  -- Reads "<delay> <in flight> <factor> <max delay> <max block> <pattern>".
  local function read_settings(packed, name)
    local s = last_read.name == name and last_read or settings_read and settings_read[name]
    if s and s.filed == packed then return s end
    local delay, in_flight, factor, max_delay, max_block = string.match(packed, '^(%S+) (%S+) (%S+) (%S+) (%S+)')
    s = {
      delay = tonumber(delay), in_flight = tonumber(in_flight), factor = tonumber(factor),
      max_delay = tonumber(max_delay), max_block = tonumber(max_block), name = name, filed = packed,
    }
    last_read = s
    return keep(name, s)
  end

  local function settings_names(queue)
    local names, host = { queue }, queue
    local bare = string.match(queue, '^([^:%[%]]*):[^:%[%]]*$') or string.match(queue, '^%[([^%[%]]*)%]:[^:%[%]]*$')
    if bare then
      host = bare
      names[2] = host
    end
    while true do
      local dot = string.find(host, '.', 1, true)
      if not dot then break end
      host = string.sub(host, dot + 1)
      names[#names + 1] = '*.' .. host
    end
    names[#names + 1] = '*'
    return names
  end

  local function look_up(hash, names)
    filed = filed or {}
    filed[hash] = filed[hash] or {}
    local found, unknown = filed[hash], {}
    for _, name in ipairs(names) do
      if found[name] == nil then unknown[#unknown + 1] = name end
    end
    if #unknown == 0 then return found end
    for i, value in ipairs(call('HMGET', P .. hash, unpack(unknown))) do found[unknown[i]] = value end
    return found
  end

  local function resolve_settings(names)
    local found = look_up('settings', names)
    for _, name in ipairs(names) do
      if found[name] then return read_settings(found[name], name) end
    end
    return DEFAULT_SETTINGS
  end

  local function held_until(names)
    if holds_version == 0 then return 0 end
    local found, last = look_up('heldqueues', names), 0
    for _, name in ipairs(names) do
      if found[name] then last = max(last, until_(found[name])) end
    end
    return last
  end

  -- The settings of a queue, and q.held, until when holds stop it, resolved once for each
  -- version of rules and holds.
  function settings_of(q)
    if q.settings then return q.settings end
    q.settings = cached_settings(q.cached)
    if not q.settings then
      local names = settings_names(q.name)
      q.settings, q.held = resolve_settings(names), held_until(names)
      q.cached = pack_settings(q.settings)
    end
    return q.settings
  end
end

-- at each call
settings_read, filed = false, false
