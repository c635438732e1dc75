-- A page of tasks that is bounded in bytes.

-- The approximate size of a task in a list, without its texts.
local LISTED_SIZE = 512

-- The tasks of the page, and what they take.
local page, page_bytes

-- Adds a task to the page, if there is one; returns false if the page would have more than limit bytes.
local function add_task(id, limit)
  local raw = call('GET', task_key(id))
  local r = read_record(raw)
  if not r then return true end
  local task = task_reply(id, raw, r, WITH.history)
  local n = LISTED_SIZE + #raw + r.core + (task[9] and #task[9][2] or 0)
  if page[1] and page_bytes + n > limit then return false end
  page[#page + 1], page_bytes = task, page_bytes + n
  return true
end

-- at each call
page, page_bytes = {}, 0
