-- The gates of a queue, and what the end of a lease does to them.

-- The delay between request starts: the longer of the rule's and the host's. At most
-- max_delay of the host's counts, or a minute if none is set (dispatch.QueueSettings.Paced).
function gate.delay(q)
  local s = rule.settings(q)
  if q.asked <= s.delay then return s.delay end
  return max(s.delay, min(q.asked, s.max_delay > 0 and s.max_delay or 60000))
end

function gate.raise(q, at)
  if at > q.next_grant then q.next_grant, q.dirty = at, true end
end

-- When the queue can be granted from; infinite for one at its limit, or held without end.
-- A next grant that lies further ahead than the longest delay is of a clock that was
-- stepped back.
function gate.opens(q)
  local s = rule.settings(q)
  if q.next_grant > now then
    local longest = gate.delay(q)
    if s.factor > 0 then longest = max(longest, s.max_delay > 0 and s.max_delay or DAY) end
    if q.next_grant > now_end + longest then q.next_grant, q.dirty = now_end + longest, true end
  end
  if q.in_flight >= s.in_flight then return INF end
  return max(q.next_grant, q.block, q.held)
end

local function block(q, s, retry_after)
  if q.block > now then
    q.block = max(q.block, now + min(retry_after, s.max_block))
    return
  end
  q.step, q.began = q.step + 1, now
  local length = retry_after > 0 and retry_after or 10000 * 2 ^ min(q.step - 1, 30)
  q.block = now + min(length, s.max_block)
end

-- Notes that a URL failed, by its hash (4 bytes). The host is blocked when three different
-- ones failed since it last answered: a failure of one URL is not yet one of its host.
local MOST_FAILED = 3
local function url_failed(q, s, hash)
  local known = #q.failed == 4 * MOST_FAILED
  for i = 1, #q.failed, 4 do known = known or sub(q.failed, i, i + 3) == hash end
  if not known then q.failed = q.failed .. hash end
  if #q.failed == 4 * MOST_FAILED then block(q, s, 0) end
end

-- What the end of a lease does to its queue: kinds as dispatch.QueueEffectKind.
gate.SUCCEEDED = 1
local BLOCKED, EXPIRED, UNTOUCHED, ANSWERED, URL_FAILED = 2, 3, 4, 5, 6

-- Ends a lease. asked is the delay that the host asks for from now on, nil if not known;
-- url the hash of the URL of URL_FAILED.
function gate.lease_ended(q, kind, fetch, retry_after, deadline, asked, url)
  q.in_flight, q.dirty = max(q.in_flight - 1, 0), true
  if asked then q.asked = asked end
  if kind == UNTOUCHED then return end
  local s, gap = rule.settings(q), gate.delay(q)
  if kind == EXPIRED then
    gate.raise(q, deadline + gap)
    return
  end
  gate.raise(q, now + gap - fetch)
  if fetch > 0 and s.factor > 0 then
    -- In nanoseconds, as Go computes it, cut to ms.
    local delay = floor(floor(s.factor * (fetch * 1000000)) / 1000000)
    gate.raise(q, now + min(delay, s.max_delay > 0 and s.max_delay or DAY))
  end
  if kind == gate.SUCCEEDED then q.step = 0 end
  if kind == gate.SUCCEEDED or kind == ANSWERED then q.failed = '' end
  if kind == BLOCKED then block(q, s, retry_after) end
  if kind == URL_FAILED then url_failed(q, s, url) end
end
