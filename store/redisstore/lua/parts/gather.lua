-- Reads the lanes of records, and their queues, each kind at once. Returns the number
-- of each record's lane as it is packed, false where there is no record.
local function gather(records)
  local numbers, names, seen, packed_of = {}, {}, {}, {}
  local alone, leased = AT.lane, LEASE + AT.lane
  for i = 1, #records do
    local raw, at, packed = records[i], alone, false
    local size = raw and #raw or 0
    if size >= HEADER and string.byte(raw) == LEASED_RECORD then size, at = size - LEASE, leased end
    if size >= HEADER then
      packed = string.sub(raw, at, at + 3)
      if not seen[packed] then seen[packed], numbers[#numbers + 1] = true, (struct.unpack('>I4', packed)) end
    end
    packed_of[i] = packed
  end
  read_all(numbers)
  for i, n in ipairs(numbers) do names[i] = get_lane(n).queue end
  read_all(nil, names)
  return packed_of
end
