-- The end of a script that changed something: each touched lane is placed once,
-- then its queue in each of its pools; counts are written; and who waits for
-- what became grantable is told, in one message.

local finish
do
  -- Adds to fields of a hash: one by one, or when they are many all in two steps.
  local function add_counts(key, counts)
    local fields = {}
    for field, n in pairs(counts) do
      if n ~= 0 then fields[#fields + 1] = field end
    end
    if #fields <= 2 then
      for _, field in ipairs(fields) do call('HINCRBY', key, field, counts[field]) end
      return
    end
    local old, set = call('HMGET', key, unpack(fields)), {}
    for i, field in ipairs(fields) do
      set[2 * i - 1], set[2 * i] = field, decimal(tonumber(old[i] or '0') + counts[field])
    end
    call('HSET', key, unpack(set))
  end

  local function flush_counts()
    add_counts(SHARD, totals)
    for uid, counts in pairs(by_source) do
      -- A source that was forgotten keeps no counts.
      if get_source(uid).known then add_counts(source_key(uid), counts) end
    end
  end

  function finish(publish)
    flush_ended()
    local placed = {}
    for _, l in ipairs(touched_list) do place_lane(l, false) end
    for _, l in ipairs(touched_list) do get_queue(l.queue).touched = true end
    local i = 0
    while i < #queue_list do
      i = i + 1
      local q = queue_list[i]
      if q.touched and not placed[q.name] then
        placed[q.name] = true
        place_queue_everywhere(q, nil)
      end
      save_queue(q)
    end
    flush_counts()
    if not publish then return end
    local shard, message = string.match(P, '{(%d+)}'), {}
    for pool, at in pairs(hints) do
      message[#message + 1] = 'ready ' .. shard .. ' ' .. pool .. ' ' .. decimal(max(at - now, 0))
    end
    if #message > 0 then call('PUBLISH', string.match(P, '^(.*):{%d+}:$') .. ':hints', table.concat(message, '\n')) end
  end
end
