-- What every script begins with: the shard it works on, and the instant at which it
-- works. TIME is read once, so a script sees one instant.
--
-- KEYS[1] of every script is the shard key, "<prefix>:{<shard>}:shard"; what else is
-- declared is for a Cluster alone, which looks whether it is there (internal/script). All
-- other keys of the shard carry the same hash tag, so they are on the same node.
--
-- The files are one library: what they define stands there once, for all scripts. When
-- Redis loads it, Lua's own functions are not there yet; begin (finish.lua) brings them.
-- Nothing that a call finds out outlives it.
local KEYS, ARGV
local call, floor, max, min, sub, byte, find, match, format, concat, sort, pack, parse
local SHARD, P -- the shard key, and what all keys of the shard begin with
local ZEROS -- what is packed of nothing: all numbers are 0

-- The functions that Redis calls, by name; and what each file gives to the others.
local scripts = {}
local key, record, shard, source, rule, gate, lane, queue, pool, place, named = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local begin, finish, acknowledge
local task, lease, lock, token, grant, claim, polite, reply, settled, collector, hints, check = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}

local INF = 1 / 0
local FOREVER = 8796093022207 -- dispatch.Forever in ms: a gate or hold without an end
local BAND = 17592186044416 -- 2^44: scores of open sets are band * BAND + since
local DAY = 86400000

-- The instant in ms and in microseconds, and the end of its millisecond, from which the
-- delay after a grant counts.
local now, now_us, now_end

-- What is written at the end, flat: keys of strings and their values; and keys to delete.
local writes, deletes

-- Instants and fences are exact in a number up to 2^53, but tostring rounds to 14 digits.
-- Redis takes numbers, too, and is slow to print them: what is passed often is better made
-- text once.
local function decimal(n) return format('%d', n) end

-- Numbers that a call needs as text again and again: those of sources and slots.
local texts
local function text_of(n)
  local text = texts[n]
  if not text then
    text = decimal(n)
    texts[n] = text
  end
  return text
end

-- Gives a command, of a key if there is one, all values, if any, some at a time: Lua's
-- stack takes less than 8000.
local function call_for_all(command, name, values)
  local n = values and #values or 0
  for i = 1, n, 1000 do
    local last = i + 999 < n and i + 999 or n
    if name then call(command, name, unpack(values, i, last)) else call(command, unpack(values, i, last)) end
  end
end

-- Adds to the list under a name, which is made with its first member.
local function add_to(lists, name, value, second)
  local list = lists[name]
  if not list then
    lists[name] = { value, second }
    return
  end
  local n = #list
  list[n + 1], list[n + 2] = value, second
end

local function write(name, value)
  local n = #writes
  writes[n + 1], writes[n + 2] = name, value
end

local function delete(name) deletes[#deletes + 1] = name end

local function flush_writes()
  if deletes[1] then
    call_for_all('DEL', nil, deletes)
    deletes = {}
  end
  if writes[1] then
    call_for_all('MSET', nil, writes)
    writes = {}
  end
end

-- An end at `at` in Redis means gone from the first millisecond after it; what Waggle
-- keeps is gone at its end.
local function expire_at(name, at) call('PEXPIREAT', name, decimal(at - 1)) end

-- Whether a string comes before another. Lua asks the locale that the server was started
-- in; Redis orders sets, and Go sorts, by bytes.
local function before(a, b)
  for i = 1, min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The end of a hold: infinite for one that someone has to lift; and how it is packed.
local function until_(ms)
  ms = tonumber(ms) or 0
  return ms >= FOREVER and INF or ms
end
local function packed_until(at) return at < FOREVER and at or FOREVER end

-- Values of ARGV from the i-th on.
local function args_from(i) return { unpack(ARGV, i) } end
