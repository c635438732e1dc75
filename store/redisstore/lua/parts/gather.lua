-- Reads lanes by number, and their queues, each kind at once.
local function gather(numbers)
  if #numbers == 1 then
    get_queue(get_lane(numbers[1]).queue)
    return
  end
  local names, before = {}, n_lanes
  read_all(numbers)
  for i = before + 1, n_lanes do names[i - before] = lane_list[i].queue end
  read_all(nil, names)
end
