-- Reads lanes by number, and their queues, each kind at once.
local function gather(numbers)
  if #numbers == 1 then
    get_queue(get_lane(numbers[1]).queue)
    return
  end
  local once, names, seen = {}, {}, {}
  for _, n in ipairs(numbers) do
    if not seen[n] then seen[n], once[#once + 1] = true, n end
  end
  read_all(once)
  for i, n in ipairs(once) do names[i] = get_lane(n).queue end
  read_all(nil, names)
end
