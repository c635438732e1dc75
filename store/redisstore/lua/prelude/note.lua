-- What the ends of leases tell of their sources, written once at the end.
local function note_success(s) s.noted, s.row, s.last_success = true, 0, now end

local function note_failure(s)
  s.row = (s.row or tonumber(call('HGET', source_key(s.uid), 'row') or '0')) + 1
  s.noted, s.last_failure = true, now
end

local function flush_notes()
  for uid, s in pairs(sources) do
    if s.noted then
      call('HSET', source_key(uid), 'row', s.row)
      if s.last_success then call('HSET', source_key(uid), 'success', decimal(s.last_success)) end
      if s.last_failure then call('HSET', source_key(uid), 'failure', decimal(s.last_failure)) end
    end
  end
end
