-- Reads the lanes of records, and their queues, each kind at once.
local function gather(records)
  local numbers, names, seen = {}, {}, {}
  for _, raw in ipairs(records) do
    local n = raw and #raw >= HEADER and struct.unpack('>I4', raw, AT.lane)
    if n and not seen[n] then
      seen[n], numbers[#numbers + 1] = true, n
    end
  end
  read_all(numbers, {}, {})
  for i, n in ipairs(numbers) do names[i] = get_lane(n).queue end
  read_all({}, names, {})
end
