-- The end of a script that changed something: each touched lane is placed once,
-- then its queue in each of its pools; counts are written; and who waits for
-- what became grantable is told, in one message.

local finish
do
  -- Adds to fields of a hash, and sets what else is given, in at most two steps.
  local function add_counts(key, counts, old, set)
    local unread
    for field, n in pairs(counts) do
      if n ~= 0 and old[field] then
        set[#set + 1], set[#set + 2] = field, decimal(old[field] + n)
      elseif n ~= 0 then
        unread = unread or {}
        unread[#unread + 1] = field
      end
    end
    if unread then
      for i, value in ipairs(call('HMGET', key, unpack(unread))) do
        set[#set + 1], set[#set + 2] = unread[i], decimal(tonumber(value or '0') + counts[unread[i]])
      end
    end
    if #set > 0 then call('HSET', key, unpack(set)) end
  end

  local function flush_counts()
    add_counts(SHARD, totals, known, fields)
    for uid in pairs(by_source) do get_source(uid) end
    for uid, s in pairs(sources) do
      -- A source that was forgotten keeps no counts.
      if s.known and (by_source[uid] or s.noted) then
        add_counts(source_key(uid), by_source[uid] or {}, s.counts, s.noted or {})
      end
    end
  end

  -- By shard, what a hint says it is ready in, and the channel of hints.
  local tellings = {}
  local function telling_of(shard)
    local t = tellings[shard]
    if not t then
      local prefix, number = string.match(P, '^(.*):{(%d+)}:$')
      t = { ready = 'ready ' .. number .. ' ', channel = prefix .. ':hints' }
      tellings[shard] = t
    end
    return t
  end

  local function publish_hints()
    local t, message = telling_of(SHARD), {}
    for pool, at in pairs(hints) do message[#message + 1] = t.ready .. pool .. ' ' .. decimal(max(at - now, 0)) end
    call('PUBLISH', t.channel, table.concat(message, '\n'))
  end

  function finish(publish)
    flush_moves()
    for _, l in ipairs(touched_list) do
      place_lane(l, false)
      get_queue(l.queue).touched = true
    end
    local i = 0
    while i < #queue_list do
      i = i + 1
      local q = queue_list[i]
      if q.touched then place_queue_everywhere(q, nil) end
    end
    save_lanes()
    save_queues()
    flush_counts()
    if publish and next(hints) then publish_hints() end
  end
end
