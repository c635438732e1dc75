-- What the ends of leases tell of their sources, beside their counts.
local function note_success(c) c.row, c.success, c.changed = 0, now, true end
local function note_failure(c) c.row, c.failure, c.changed = c.row + 1, now, true end
