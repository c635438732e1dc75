-- The begin and the end of each call.

-- Makes ready for a call: nothing of an earlier one is left.
function begin(keys, args)
  KEYS, ARGV = keys, args
  if not call then
    call, floor, max, min, format = redis.call, math.floor, math.max, math.min, string.format
    sub, byte, find, match, concat, sort = string.sub, string.byte, string.find, string.match, table.concat, table.sort
    pack, parse = struct.pack, struct.unpack
    ZEROS = string.rep('\0', 86)
  end
  SHARD = KEYS[1]
  P = sub(SHARD, 1, -6)
  local clock = call('TIME')
  now_us = clock[1] * 1000000 + clock[2]
  now, now_end = floor(now_us / 1000), floor((now_us + 999) / 1000)
  writes, deletes, texts = {}, {}, {}
  key.begin()
  shard.begin()
  source.begin()
  rule.begin()
  queue.begin()
  pool.begin()
  place.begin()
  hints.begin()
  settled.begin()
  lock.begin()
  claim.begin()
end

-- Places what was changed: each lane once, then its queue in each of its pools.
local function place_all()
  local queues, i = queue.all(), 0
  while i < #queues do
    i = i + 1
    local q = queues[i]
    if q.touched then
      if q.lane and q.lane.touched then
        q.lane.touched = false
        place.lane(q.lane, false)
      elseif q.lanes then
        for _, l in pairs(q.lanes) do
          if l and l.touched then
            l.touched = false
            place.lane(l, false)
          end
        end
      end
      place.queue(q, nil)
    end
  end
end

-- Writes the lanes of a wide queue that were changed.
local function save_lanes(q)
  local empty = {}
  for n, l in pairs(q.lanes) do
    if l and l.dirty then
      lane.settle(l)
      l.dirty = false
      if not lane.is_empty(l) then
        write(key.lane(l.name), pack(lane.FORMAT, #l.pool, l.pool, lane.packed(l)) .. lane.head(l))
        l.stored = true
      else
        empty[#empty + 1] = l
        if l.stored then call('DEL', key.lane(l.name)) end
        q.lanes[n] = false
      end
    end
  end
  settled.unlist(empty)
end

-- Deletes queues that nothing waits in, nothing is in flight of, and no gate holds; and
-- their lanes.
function queue.close(queues)
  local names, idle, empty = {}, {}, {}
  for i = 1, #queues do
    local q = queues[i]
    if q.lane then empty[#empty + 1] = q.lane end
    if q.exists then
      delete(key.queue(q.name))
      names[#names + 1] = queue.reversed(q.name)
      if q.idle then idle[#idle + 1] = q.name end
    end
    queue.forget(q)
  end
  settled.unlist(empty)
  call_for_all('ZREM', key.queues, names)
  call_for_all('ZREM', key.idle, idle)
end

-- Writes the queues that were changed, and all other records.
local function save_queues()
  local queues, gone, named_anew, idle, busy = queue.all(), {}, {}, {}, {}
  for i = 1, #queues do
    local q = queues[i]
    if q.dirty then
      q.dirty = false
      if q.wide then save_lanes(q) elseif q.lane then lane.settle(q.lane) end
      local empty, ends = q.in_flight <= 0 and q.waiting <= 0, queue.ends(q)
      if empty and ends <= now then
        gone[#gone + 1] = q
      else
        if empty and q.wide then q.wide, q.lanes = false, false end
        write(key.queue(q.name), queue.pack(q))
        if not q.exists then named_anew[#named_anew + 1], named_anew[#named_anew + 2] = '0', queue.reversed(q.name) end
        if empty and ends < INF then idle[#idle + 1], idle[#idle + 2] = ends, q.name
        elseif q.idle then busy[#busy + 1] = q.name end
        q.exists, q.idle = true, empty
      end
    end
  end
  if gone[1] then queue.close(gone) end
  call_for_all('ZADD', key.queues, named_anew)
  call_for_all('ZADD', key.idle, idle)
  call_for_all('ZREM', key.idle, busy)
end

-- Ends a script that changed something. publish: what became grantable is told.
function finish(publish)
  lease.flush()
  place_all()
  save_queues()
  pool.flush()
  settled.save()
  shard.save()
  source.save()
  flush_writes()
  if publish then hints.publish() end
end
