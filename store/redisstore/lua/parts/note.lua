-- What the ends of leases tell of their sources, written once at the end, with
-- their counts.
local function note_success(s) s.row, s.last_success = 0, now end

local function note_failure(s)
  s.row = (s.row or tonumber(call('HGET', source_key(s.uid), 'row') or '0')) + 1
  s.last_failure = now
end

local function flush_notes()
  for _, s in pairs(sources) do
    if s.row then
      local set = { 'row', decimal(s.row) }
      if s.last_success then set[3], set[4] = 'success', decimal(s.last_success) end
      if s.last_failure then set[#set + 1], set[#set + 2] = 'failure', decimal(s.last_failure) end
      s.noted = set
    end
  end
end
