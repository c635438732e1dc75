-- The end of a script that changed something. Each touched lane is placed once, then its queue in each of its pools;
-- counts are written; hints for what became grantable are sent in one message.

local finish
do
  local function save_counts()
    if counts and counts.changed then call('HSET', SHARD, 'counts', pack_counts(counts), unpack(fields))
    elseif fields[1] then call('HSET', SHARD, unpack(fields)) end
  end

  -- By shard, the time of a hint, and the channel of hints.
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
    for k = 1, #touched_list do
      local l = touched_list[k]
      place_lane(l, false)
      get_queue(l.queue).touched = true
    end
    local i = 0
    while i < n_queues do
      i = i + 1
      local q = queue_list[i]
      if q.touched then place_queue_everywhere(q, nil) end
    end
    save_lanes()
    save_queues()
    save_counts()
    save_sources()
    if publish and hints then publish_hints() end
  end
end
