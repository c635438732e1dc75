-- The ids of a grant, as its notes have them: those that follow in one lane are
-- without their slot.
local function ids_of(text)
  local ids, slot = {}, ''
  for id in string.gmatch(text, '%S+') do
    local at = string.find(id, '-', 1, true)
    if at then slot = string.sub(id, 1, at) else id = slot .. id end
    ids[#ids + 1] = id
  end
  return ids
end
