-- The settings of a queue: those filed under the most specific name, in the
-- order of dispatch.SettingsNames, and a paused "*" whatever else holds.
local settings_read -- by this call, as they are packed, or by name
-- What is filed under the names that this call has looked up, false = nothing.
local filed

local function get_rules_version()
  if not rules_version then rules_version = tonumber(call('HGET', SHARD, 'rules') or '0') end
  return rules_version
end

local settings_of
do
  local DEFAULT_SETTINGS = { delay = 1000, in_flight = 1, factor = 0, max_delay = 0, max_block = DAY, paused = false,
    deny = false, name = '', pattern = '', paused_by = '' }

  -- What a queue keeps of its settings, so that they are looked up only after the
  -- rules have changed.
  local SETTINGS_FIELDS = { 'delay', 'in_flight', 'factor', 'max_delay', 'max_block', 'paused', 'deny', 'name', 'pattern',
    'paused_by' }

  local function pack_settings(s)
    local version = get_rules_version()
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
    if get_rules_version() == 0 then return DEFAULT_SETTINGS end
    if not packed or packed == '' then return nil end
    local s = last.packed == packed and last or settings_read and settings_read[packed]
    if not s then
      s = unpack_settings(packed)
      last = keep(packed, s)
    end
    return s.version == get_rules_version() and s or nil
  end

  -- Reads "<delay> <in flight> <factor> <max delay> <max block> <paused> <deny> <pattern>".
  local function read_settings(packed, name)
    local s = last_read.name == name and last_read or settings_read and settings_read[name]
    if s and s.filed == packed then return s end
    local delay, in_flight, factor, max_delay, max_block, paused, deny, pattern =
      string.match(packed, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)')
    s = {
      delay = tonumber(delay), in_flight = tonumber(in_flight), factor = tonumber(factor),
      max_delay = tonumber(max_delay), max_block = tonumber(max_block),
      paused = paused == '1', deny = deny == '1', name = name, pattern = pattern, paused_by = pattern, filed = packed,
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

  local function look_up(names)
    local unknown = {}
    filed = filed or {}
    for _, name in ipairs(names) do
      if filed[name] == nil then unknown[#unknown + 1] = name end
    end
    if #unknown == 0 then return end
    for i, value in ipairs(call('HMGET', SETTINGS, unpack(unknown))) do filed[unknown[i]] = value end
  end

  local function resolve_settings(queue)
    local names = settings_names(queue)
    look_up(names)
    local found = DEFAULT_SETTINGS
    for _, name in ipairs(names) do
      if filed[name] then
        found = read_settings(filed[name], name)
        break
      end
    end
    local all = filed['*'] and read_settings(filed['*'], '*')
    if all and all.paused and not found.paused then
      local held = {}
      for k, v in pairs(found) do held[k] = v end
      held.paused, held.paused_by, held.packed = true, all.pattern, nil
      return held
    end
    return found
  end

  -- The settings of a queue, resolved once for each version of the rules.
  function settings_of(q)
    if q.settings then return q.settings end
    q.settings = cached_settings(q.cached)
    if not q.settings then
      q.settings = resolve_settings(q.name)
      q.cached = pack_settings(q.settings)
    end
    return q.settings
  end
end

-- at each call
settings_read, filed = false, false
