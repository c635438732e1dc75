-- What a claim is asked for.
local read_wants
do
  -- Max, max bytes, lease in ms, numbers of sources and of queues, the holder's
  -- digest, collector, session, client token, call (claim.go).
  local WANT = '>I2I4I6BBc8Bc0Bc0Bc0Bc0'

  local function list(i, n)
    local values = {}
    for k = 1, n do values[k] = ARGV[i + k - 1] end
    return values
  end

  -- In one constructor, whose table has room for 16 fields: nearly no want has
  -- what it narrows to, in sources and queues, or is ended by its max bytes.
  local function read_want(i)
    local most, max_bytes, lease, sources, queues, holder, collector, session, token, by = struct.unpack(WANT, ARGV[i])
    local name = collector .. '/' .. token
    local w = {
      collector = collector, session = session, call = by, token = token, holder = holder, holder_name = name,
      max = most, max_bytes = max_bytes, lease = lease, ids = {}, turns = false, bytes = 0, fence = 0, answer = 0,
    }
    if sources > 0 then w.sources = list(i + 1, sources) end
    if queues > 0 then w.queues = list(i + 1 + sources, queues) end
    return w, i + 1 + sources + queues
  end

  -- The n wants from the i-th argument on.
  function read_wants(n, i)
    local wants = {}
    for k = 1, n do wants[k], i = read_want(i) end
    return wants
  end
end
