-- Marks leased tasks, so that their holders get a request to stop, and notifies all
-- dispatchers in one message. The mark of a hold does not replace another mark
-- (dispatch.Leases.RequestCancel).
--
-- KEYS[1]  the shard key
-- ARGV     reason, a line for the history of the marked tasks ('' = none), ids
-- Returns  how many were marked
-- Cost     3 commands a task, with a line 5; at most 100
--
-- uses: history
local reason, line, marked, told = tonumber(ARGV[1]), ARGV[2], 0, {}
for i = 3, #ARGV do
  local r = read_record(call('GET', task_key(ARGV[i])))
  if r and r.state == LEASED and r.cancel ~= reason and (reason ~= CANCEL_HELD or r.cancel == 0) then
    r.cancel, r.revision = reason, r.revision + 1
    if line ~= '' then
      local key = history_key(ARGV[i])
      call('SET', key, with_history(r.history and call('GET', key), false, '', line))
      r.history = true
    end
    write_record(ARGV[i], r)
    marked = marked + 1
    local collector = string.match(r.holder, '^([^/ ]+)/')
    if collector then told[#told + 1] = 'cancel ' .. collector .. ' ' .. ARGV[i] .. ' ' .. ARGV[1] end
  end
end
if #told > 0 then call('PUBLISH', string.match(P, '^(.*):{%d+}:$') .. ':hints', table.concat(told, '\n')) end
return marked
