-- What every script begins with: the shard it works on, and the instant at
-- which it works. TIME is read once, so a script sees one instant.
--
-- KEYS[1] of every script is the shard key, "<prefix>:{<shard>}:shard"; what else is
-- declared is for a Cluster alone, which looks whether it is there (internal/script). All
-- other keys of the shard carry the same hash tag, so they are on the same node.
--
-- What stands here and in the other parts is defined once, when Redis loads the
-- library, for all scripts; only what follows "at each call" is done anew by each
-- call. When Redis loads it, none of its own functions and of Lua's is there.
local call, floor, max, min
local SHARD, P, new_shard
local ZEROS -- what is packed of nothing: all numbers are 0

local INF = 1 / 0
local FOREVER = 8796093022207 -- dispatch.Forever in ms: a gate or hold without an end
local BAND = 17592186044416   -- 2^44: scores of open sets are band * BAND + since
local DAY = 86400000

-- The instant in ms and in microseconds, and the end of its millisecond, from
-- which the delay after a grant counts.
local now, now_us, now_end

-- Instants and fences are exact in a number up to 2^53, but tostring rounds to
-- 14 digits. Redis takes numbers, too, and is slow to print them: what is passed
-- often is better made text once.
local function decimal(n) return string.format('%d', n) end

-- An end at `at` in Redis means gone from the first millisecond after it; what
-- Waggle keeps is gone at its end.
local function expire_at(key, at) call('PEXPIREAT', key, decimal(at - 1)) end

-- Gives a command, of a key if there is one, all values, if any, some at a time: Lua's
-- stack takes less than 8000.
local function call_for_all(command, key, values)
  local n = values and #values or 0
  for i = 1, n, 1000 do
    local last = i + 999 < n and i + 999 or n
    if key then call(command, key, unpack(values, i, last)) else call(command, unpack(values, i, last)) end
  end
end

-- Whether a string comes before another. Lua asks the locale that the server was
-- started in; Redis orders sets, and Go sorts, by bytes.
local function before(a, b)
  for i = 1, min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The end of a hold: infinite for one that someone has to lift.
local function until_(ms)
  ms = tonumber(ms) or 0
  return ms >= FOREVER and INF or ms
end

-- Sources as this script has read them, by uid.
local sources

-- at each call
if not call then
  call, floor, max, min = redis.call, math.floor, math.max, math.min
  ZEROS = string.rep('\0', 72)
end
new_shard = SHARD ~= KEYS[1]
if new_shard then
  SHARD = KEYS[1]
  P = string.sub(SHARD, 1, -6)
end
local clock = call('TIME')
now_us = clock[1] * 1000000 + clock[2]
now, now_end = floor(now_us / 1000), floor((now_us + 999) / 1000)
sources = {}
