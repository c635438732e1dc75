-- The end of a script that changed something: each touched lane is placed once,
-- then its queue in each of its pools; counts are written; and who waits for
-- what became grantable is told, in one message.
local function flush_counts()
  for field, n in pairs(totals) do
    if n ~= 0 then call('HINCRBY', SHARD, field, n) end
  end
  for uid, counts in pairs(by_source) do
    -- A source that was forgotten keeps no counts.
    if get_source(uid).known then
      for field, n in pairs(counts) do
        if n ~= 0 then call('HINCRBY', source_key(uid), field, n) end
      end
    end
  end
end

local function finish(publish)
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
