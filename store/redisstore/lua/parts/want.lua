-- What a claim is asked for.
local read_want
do
  -- Max, max bytes, lease in ms, numbers of sources and of queues, the holder's
  -- digest, collector, session, client token, call (claim.go).
  local WANT = '>I2I4I6BBc8Bc0Bc0Bc0Bc0'
  local NONE = {}

  local function list(i, n)
    if n == 0 then return NONE end
    local values = {}
    for k = 1, n do values[k] = ARGV[i + k - 1] end
    return values
  end

  function read_want(i)
    local most, max_bytes, lease, sources, queues, holder, collector, session, token, by = struct.unpack(WANT, ARGV[i])
    return {
      collector = collector, session = session, token = token, call = by, holder = holder, max = most, max_bytes = max_bytes,
      lease = lease, tasks = {}, ids = {}, turns = {}, bytes = 0, deadline = 0, fence = 0, ended = false, note = nil, keep = nil, grant_key = nil,
      sources = list(i + 1, sources), queue_names = list(i + 1 + sources, queues), holder_name = collector .. '/' .. token,
    }, i + 1 + sources + queues
  end
end
