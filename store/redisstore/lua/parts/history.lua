-- What the ends of a task's leases leave behind, in one string made when first
-- needed: its last error and its last attempts (internal/record, decodeHistory).
--
--	how many attempts 1, bytes of the error 4, the error
--	of each attempt, oldest first: its bytes 4, the attempt
local HISTORY_LENGTH = 10 -- dispatch.MaxHistory

-- The history with a new error or attempt, each '' for none; clear takes the error
-- out. '' is a history of nothing.
local function with_history(packed, clear, failure, attempt)
  local n, last, at = 0, '', 6
  if packed then n, last, at = struct.unpack('>BI4c0', packed) end
  if failure ~= '' then last = failure end
  if clear then last = '' end
  local attempts = packed and string.sub(packed, at) or ''
  if attempt ~= '' then
    if n == HISTORY_LENGTH then attempts = string.sub(attempts, 5 + struct.unpack('>I4', attempts)) else n = n + 1 end
    attempts = attempts .. struct.pack('>I4', #attempt) .. attempt
  end
  if n == 0 and last == '' then return '' end
  return struct.pack('>BI4', n, #last) .. last .. attempts
end
