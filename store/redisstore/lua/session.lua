-- Ends all sessions of a collector except one in this shard, and returns some of the
-- tasks that they hold (dispatch.Leases.EndSession): those found by one step of a scan of
-- the collector's grants. It does nothing if that session was replaced.
--
-- KEYS[1]  the shard key
-- ARGV     collector, the session to keep, limit, whether this is the collector's
--          home shard and nothing was found before (0, 1); cursor ('0' = begin, '' =
--          the end), and the fields that the scan has found and that are not read yet
-- Returns  tasks, and the start of the next step, as above
-- Cost     O(log n) a lease found, at most 300; and about 200 fields of a hash (its
--          values are too long for the listpack encoding)
--
-- uses: collector ids grant
local SCAN, MOST = 100, 200
local collector, keep, limit, cursor = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
local held, fields, found, reads, at = held_key(collector), {}, {}, 0, 1

-- Finds what is held of the tasks of a grant; says whether something may be.
local function look(holder, ids)
  local before = #found
  for _, id in ipairs(ids_of(ids)) do
    if #found == limit then return true end
    local raw = call('GET', task_key(id))
    local r = read_record(raw)
    reads = reads + 1
    if r and r.state == LEASED and r.holder == holder then found[#found + 1] = task_reply(id, raw, r, WITH.nothing) end
  end
  return #found > before
end

-- Looks at a field; of a grant of which nothing is held any more none stays.
local function look_at(field)
  local note, token = grants.read(call('HGET', held, field)), string.match(field, '[^/]+')
  if note and note.session ~= keep and not look(collector .. '/' .. token, note.ids) then call('HDEL', held, token, field) end
end

if was_replaced(collector, keep) then return { {}, '' } end
call('SET', keep_key(collector), keep)
expire_at(keep_key(collector), now + DAY)
for i = 6, #ARGV do fields[i - 5] = ARGV[i] end
if #fields == 0 then
  local step = call('HSCAN', held, cursor, 'COUNT', SCAN)
  cursor = step[1] ~= '0' and step[1] or ''
  for i = 1, #step[2], 2 do
    if string.find(step[2][i], '/', 1, true) then fields[#fields + 1] = step[2][i] end
  end
end
while fields[at] and reads < MOST and #found < limit do
  look_at(fields[at])
  at = at + 1
end
if ARGV[4] == '1' and cursor == '' and not fields[at] and #found == 0 then session_ended(collector, keep) end
return { found, cursor, unpack(fields, at) }
