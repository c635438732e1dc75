-- The gates of a queue, and what the end of a lease does to them.

-- The delay between request starts: the longer of the rule's and the host's. At most max_delay of the host's counts, or
-- a minute if none is set (dispatch.QueueSettings.Paced).
local function delay_of(q)
  local s = settings_of(q)
  if q.asked <= s.delay then return s.delay end
  return max(s.delay, min(q.asked, s.max_delay > 0 and s.max_delay or 60000))
end

local function raise_next_grant(q, at)
  if at > q.next_grant then q.next_grant, q.dirty = at, true end
end

local queue_gate
do
  -- The longest that next_grant can lie ahead; further, the clock was stepped back.
  local function longest_delay(s)
    if s.factor > 0 then return max(s.delay, s.max_delay > 0 and s.max_delay or DAY) end
    return s.delay
  end

  function queue_gate(q)
    local s = settings_of(q)
    local bound = now_end + max(longest_delay(s), delay_of(q))
    if q.next_grant > bound then q.next_grant, q.dirty = bound, true end
    if q.in_flight >= s.in_flight then return INF end
    return max(q.next_grant, q.block, q.held)
  end
end

-- What the end of a lease does to its queue: kinds as dispatch.QueueEffectKind.
local SUCCEEDED = 1
local lease_ended
do
  local BLOCKED, EXPIRED = 2, 3

  local function block_queue(q, s, retry_after)
    if q.block > now then
      q.block = max(q.block, now + min(retry_after, s.max_block))
      return
    end
    q.step, q.began = q.step + 1, now
    local length = retry_after > 0 and retry_after or 10000 * 2 ^ min(q.step - 1, 30)
    q.block = now + min(length, s.max_block)
  end

  -- asked is the delay that the host asks for from now on, nil if not known. Leases that end alike can end together: n
  -- of them, the shortest fetch and the longest.
  function lease_ended(q, kind, fetch, retry_after, deadline, asked, n, longest)
    q.in_flight, q.dirty, longest = q.in_flight - (n or 1), true, longest or fetch
    if asked then q.asked = asked end
    local s, gap = settings_of(q), delay_of(q)
    if kind == EXPIRED then
      raise_next_grant(q, deadline + gap)
      return
    elseif kind > EXPIRED then
      return
    end
    raise_next_grant(q, now + gap - fetch)
    if longest > 0 and s.factor > 0 then
      -- In nanoseconds, as Go computes it, cut to ms.
      local delay = floor(floor(s.factor * (longest * 1000000)) / 1000000)
      raise_next_grant(q, now + min(delay, s.max_delay > 0 and s.max_delay or DAY))
    end
    if kind == SUCCEEDED then q.step = 0 end
    if kind == BLOCKED then block_queue(q, s, retry_after) end
  end
end
