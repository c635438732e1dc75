-- Reads the lanes of records, and their queues, each kind at once. Returns the number
-- of each record's lane as it is packed, false where there is no record.
local function gather(records)
  local numbers, names, seen, packed_of = {}, {}, {}, {}
  for i = 1, #records do
    local raw, packed = records[i], false
    if is_whole(raw) then
      local at = is_leased(raw) and LEASE + AT.lane or AT.lane
      packed = string.sub(raw, at, at + 3)
      if not seen[packed] then seen[packed], numbers[#numbers + 1] = true, (struct.unpack('>I4', packed)) end
    end
    packed_of[i] = packed
  end
  read_all(numbers, {}, {})
  for i, n in ipairs(numbers) do names[i] = get_lane(n).queue end
  read_all({}, names, {})
  return packed_of
end
