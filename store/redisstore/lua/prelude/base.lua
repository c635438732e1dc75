-- What every script begins with: the shard it works on, and the instant at
-- which it works. TIME is read once, so a script sees one instant.
--
-- KEYS[1] of every script is the shard key, "<prefix>:{<shard>}:shard". All
-- other keys of the shard carry the same hash tag, so they are on the same node.
local call = redis.call
local floor, max, min = math.floor, math.max, math.min
local SHARD = KEYS[1]
local P = string.sub(SHARD, 1, -6)

local INF = math.huge
local FOREVER = 8796093022207 -- dispatch.Forever in ms: a gate without an end
local BAND = 17592186044416   -- 2^44: scores of open sets are band * BAND + since
local DAY = 86400000

local clock = call('TIME')
local now = clock[1] * 1000 + floor(clock[2] / 1000)
local now_us = clock[1] * 1000000 + clock[2]
-- The end of this millisecond, from which the delay after a grant counts.
local now_end = floor((now_us + 999) / 1000)

-- Instants and fences are exact in a number up to 2^53, but tostring rounds to
-- 14 digits.
local function decimal(n) return string.format('%.0f', n) end

-- An end at `at` in Redis means gone from the first millisecond after it; what
-- Waggle keeps is gone at its end.
local function expire_at(key, at) call('PEXPIREAT', key, decimal(at - 1)) end

-- The end of a gate: infinite for one that someone has to lift.
local function until_(ms)
  ms = tonumber(ms) or 0
  return ms >= FOREVER and INF or ms
end

-- An optional string of the arguments: '-' is none, '=...' is what follows.
local function optional(arg)
  if string.sub(arg, 1, 1) == '=' then return string.sub(arg, 2) end
  return nil
end

-- The first write of a script decides whether Redis runs it when its memory is
-- full. HDEL is always allowed, and then so is the rest: work under way is
-- finished and handed out, and only submits are refused. prelude/drain.lua does
-- it at once; a script that often writes nothing, when it comes to writing.
local function run_when_full() call('HDEL', SHARD, '-') end

-- Sources as this script has read them, by uid.
local sources = {}
