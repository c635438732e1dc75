-- Reads lanes by number, and their queues, each kind at once.
local function gather(numbers)
  if #numbers == 1 then
    get_queue(get_lane(numbers[1]).queue)
    return
  end
  local once, names, seen = {}, {}, {}
  for i = 1, #numbers do
    local n = numbers[i]
    if not seen[n] then seen[n], once[#once + 1] = true, n end
  end
  read_all(once)
  for i = 1, #once do names[i] = lanes[once[i]].queue end
  read_all(nil, names)
end
