-- Calls about sources: those of the home shard of their id, where the source itself stands
-- (JSON, internal/key), and those of every shard.

-- Lists a source in an index of this home shard, or not ('0').
local function list(index, id, stands)
  if stands == '1' then call('ZADD', P .. index, 0, id) else call('ZREM', P .. index, id) end
end

-- Stores a source in its home shard, if the id is free. A full store takes no new sources,
-- only changes of existing ones.
--
-- ARGV     id, the source, whether a version is pending, and whether it has holds (0, 1)
-- Returns  1, or 0 if the id is taken
-- Cost     O(log n)
-- flags: none
-- acknowledged
function scripts.create()
  local id = ARGV[1]
  if not call('SET', P .. 'source:' .. id, ARGV[2], 'NX') then return 0 end
  call('ZADD', P .. 'sources', 0, id)
  list('pending', id, ARGV[3])
  list('heldsources', id, ARGV[4])
  return 1
end

-- Replaces or removes a source in its home shard, if it has not changed since it was read.
--
-- ARGV     id, the stored source as it was read, the new one ('-' = remove, else '=...'),
--          whether a version is pending, and whether it has holds (0, 1)
-- Returns  1, or 0 if another source is stored
-- Cost     O(log n)
-- acknowledged
function scripts.source()
  local id, old, new = ARGV[1], ARGV[2], match(ARGV[3], '^=(.*)')
  local name = P .. 'source:' .. id
  if call('GET', name) ~= old then return 0 end
  if new then
    call('SET', name, new)
    call('ZADD', P .. 'sources', 0, id)
  else
    call('DEL', name)
    call('ZREM', P .. 'sources', id)
  end
  list('pending', id, ARGV[4])
  list('heldsources', id, ARGV[5])
  return 1
end

-- Stores the gate of a source in the shard, and places a page of its lanes anew
-- (dispatch.Sources.PushSource).
--
-- ARGV     page: the cursor of a scan, 0 = begin; about how many lanes; a gate
-- Returns  the next page, 0 = the end
-- Cost     O(log n) a lane
function scripts.push()
  local s, version = source.take_gate(3)
  if s.gate and s.version > version then
    finish(false)
    return '0'
  end
  local found = call('SSCAN', key.lanes(s.n), ARGV[1], 'COUNT', ARGV[2])
  queue.read_all(found[2])
  for _, name in ipairs(found[2]) do
    local l = queue.lane(queue.get(name), s.n)
    if l and not lane.is_empty(l) then lane.touch(l) end
  end
  finish(true)
  return found[1]
end

-- Adds counts of links that were not followed, packed, to those that are kept of a source,
-- by reason (gate.go).
function source.count_filtered(s, packed)
  local kept, sums = (call('HGET', key.filtered, s.n) or '') .. ZEROS, {}
  for at = 1, #packed, 6 do sums[#sums + 1] = pack('>i6', parse('>i6', kept, at) + parse('>i6', packed, at)) end
  call('HSET', key.filtered, s.n, concat(sums))
end

-- Counts links of a source that were not followed (dispatch.Sources.CountFiltered).
--
-- ARGV     uid; the counts by reason, packed
-- Returns  1
-- Cost     O(1)
function scripts.filtered()
  local n = source.number(ARGV[1])
  local s = n and source.get(n)
  if s and s.gate then source.count_filtered(s, ARGV[2]) end
  return 1
end

-- Reads what is counted of sources (dispatch.Sources.SourceStatuses).
--
-- ARGV     uids
-- Returns  flat, per source: its counts and the links that were not followed, packed
-- Cost     O(1) a source
-- flags: no-writes
function scripts.statuses()
  local out = {}
  for i, uid in ipairs(ARGV) do
    local n = source.number(uid)
    if n and not source.get(n).gate then n = nil end
    out[2 * i - 1], out[2 * i] = n and call('GET', key.counts(n)) or '', n and call('HGET', key.filtered, n) or ''
  end
  return out
end
