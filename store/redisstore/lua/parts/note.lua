-- What the ends of leases record in their sources, other than counts.
local function note_success(c) c.row, c.success, c.changed = 0, now, true end
local function note_failure(c) c.row, c.failure, c.changed = c.row + 1, now, true end
