-- Reads the lanes of records, and their queues, each kind at once.
local function gather(records)
  local numbers, names, seen = {}, {}, {}
  for i = 1, #records do
    local raw = records[i]
    if is_whole(raw) then
      local at = is_leased(raw) and LEASE + AT.lane or AT.lane
      local packed = string.sub(raw, at, at + 3)
      if not seen[packed] then seen[packed], numbers[#numbers + 1] = true, (struct.unpack('>I4', packed)) end
    end
  end
  read_all(numbers, {}, {})
  for i, n in ipairs(numbers) do names[i] = get_lane(n).queue end
  read_all({}, names, {})
end
