-- Reads a page of the leases, lane by lane (dispatch.Leases.ListLeases). A scan finds
-- every lane that stays in the lease index through the listing, even if its score changes.
--
-- KEYS[1]  the shard key
-- ARGV     limit of leases, limit of bytes (the first lease always fits); the cursor of
--          the scan ('' = its end); score and member to begin after in the first of the
--          following lanes ('' = the first); the lanes that the scan has found and that
--          are not read yet
-- Returns  now, tasks, their bytes, and the start of the next page, as above
-- Cost     O(log n + limit), at most 300 lanes and as many as one step of the scan finds
--
-- flags: no-writes
-- uses: rank page
local limit, limit_bytes, scan, score, after = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local names, at = {}, 1
for i = 6, #ARGV do names[#names + 1] = ARGV[i] end

-- The next lanes, the earliest first.
local function scan_on()
  local step, met = call('ZSCAN', LEASES, scan, 'COUNT', 20), {}
  scan = step[1] ~= '0' and step[1] or ''
  for i = 1, #step[2], 2 do
    if not split_member(step[2][i]) then met[#met + 1] = { name = step[2][i], at = tonumber(step[2][i + 1]) } end
  end
  table.sort(met, function(a, b) return a.at < b.at end)
  for _, m in ipairs(met) do names[#names + 1] = m.name end
end

-- Reads leases of a lane; says whether those are the last.
local function read_on(name)
  local set = tasks_key(name)
  local rank = first_rank(set, decimal(LEASED_FROM), score, after)
  local found = call('ZRANGE', set, rank, rank + limit - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) >= ORPHAN_FROM then return true end
    if not add_task(id_of(get_lane(name), found[i]), limit_bytes) then return false end
    score, after, limit = found[i + 1], found[i], limit - 1
  end
  return limit > 0
end

for _ = 1, 300 do
  if at > #names and scan ~= '' then scan_on()
  elseif at > #names or not read_on(names[at]) then break
  else at, score, after = at + 1, '', '' end
end
return { now, page, page_bytes, scan, score, after, unpack(names, at) }
