-- The audit log, a stream in shard 0. The id of an entry is its time in ms and a number.

-- Adds an entry, unless an earlier attempt of the call has added it (dispatch.AuditLog.AppendAudit).
--
-- ARGV     an id that is unique to this call, the entry (JSON), the limit of entries
-- Returns  1
-- Cost     O(1)
function scripts.audit()
  local LATEST = 20
  local name, id = P .. 'audit', decimal(now) .. '-0'
  local latest = call('XREVRANGE', name, '+', '-', 'COUNT', LATEST)
  for _, entry in ipairs(latest) do
    if entry[2][2] == ARGV[1] then return 1 end
  end
  if latest[1] then
    local time, n = match(latest[1][1], '(%d+)%-(%d+)')
    if tonumber(time) >= now then id = time .. '-' .. decimal(n + 1) end
  end
  call('XADD', name, 'MAXLEN', ARGV[3], id, 'call', ARGV[1], 'entry', ARGV[2])
  return 1
end
