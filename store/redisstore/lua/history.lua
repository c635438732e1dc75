-- What the ends of a task's leases leave behind, in one string made when first needed: its
-- last error and its last attempts (internal/record, decodeHistory).
--
--	how many attempts 1, bytes of the error 4, the error
--	of each attempt, oldest first: its bytes 4, the attempt
local LENGTH = 10 -- dispatch.MaxHistory

-- The history with a new error or attempt, each '' for none; clear takes the error out. ''
-- is a history of nothing.
function task.with_history(packed, clear, failure, attempt)
  local n, last, at = 0, '', 6
  if packed then n, last, at = parse('>BI4c0', packed) end
  if failure ~= '' then last = failure end
  if clear then last = '' end
  local attempts = packed and sub(packed, at) or ''
  if attempt ~= '' then
    if n == LENGTH then attempts = sub(attempts, 5 + parse('>I4', attempts)) else n = n + 1 end
    attempts = attempts .. pack('>I4', #attempt) .. attempt
  end
  if n == 0 and last == '' then return '' end
  return pack('>BI4', n, #last) .. last .. attempts
end
