-- How the record of a task begins that succeeded and needs no policy. What leased
-- records begin with is mostly the same, so this is made once for all of them.
local begins
local begin_of, settled_begin
do
  local R_SUCCEEDED = 1
  local BEGIN = '>BBBBBI4I4' -- version to cycle
  local FROM, TO = LEASE + 1, LEASE + 13
  local NO_ATTEMPTS = '\0\0\0\0' .. NO_COUNTERS

  -- What a leased record begins with, read.
  function begin_of(raw)
    local head = string.sub(raw, FROM, TO)
    local b = begins[head]
    if not b then
      local version, _, flags, _, cancel, revision, cycle = struct.unpack(BEGIN, head)
      b = { version = version, revision = revision, cycle = cycle, plain = flags % 4 == 0 and cancel == 0,
        details = flags % 8 >= DETAILS, history = flags % 16 >= HISTORY, bare = false, detailed = false }
      begins[head] = b
    end
    return b
  end

  -- What it begins with when it is settled, up to its last lease.
  function settled_begin(b, detailed)
    local field = detailed and 'detailed' or 'bare'
    if not b[field] then
      b[field] = struct.pack(BEGIN, b.version, DONE, detailed and DETAILS or 0, R_SUCCEEDED, 0,
        (b.revision + 2) % 4294967296, (b.cycle + 1) % 4294967296) .. NO_ATTEMPTS .. struct.pack('>I6', now)
    end
    return b[field]
  end
end

-- at each call
begins = {}
