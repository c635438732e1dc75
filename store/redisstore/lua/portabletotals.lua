-- What shards know of sources and client tokens, and count, of a store that is copied
-- (dispatch.Portable).
local SHARD_COUNTERS = { 'granted', 'settled', 'expired', 'orphaned', 'dropped', 'done' }

-- Reads the gates of sources.
--
-- ARGV     the number to begin at, how many numbers
-- Returns  the next number (0 = the end); per source 12 values (source.lua)
-- Cost     O(1) a number; at most 100
-- flags: no-writes
function scripts.exportgates()
  local from, last, out = tonumber(ARGV[1]), shard.counts().sources, {}
  local to = min(from + tonumber(ARGV[2]) - 1, last)
  for n = from, to do
    local s = source.get(n)
    if s.gate then
      out[#out + 1] = { s.uid, s.id, s.version, s.pool, s.priority, packed_until(s.held), s.deleted and 1 or 0, s.limit, s.lease, s.hold, s.joined, s.remember }
    end
  end
  return { to < last and to + 1 or 0, unpack(out) }
end

-- Takes in the gates of sources.
--
-- ARGV     12 values a gate (source.lua)
-- Returns  1
-- Cost     O(log n) a source; at most 100
-- flags: none
function scripts.importgates()
  for i = 1, #ARGV, source.GATE_ARGS do source.take_gate(i) end
  finish(false)
  return 1
end

-- Adds to what a source counts, and sets what has no sum.
--
-- ARGV     per source: uid; limited, failures in a row, last success, last
--          failure; done tasks that the store does not count yet
-- Returns  1
-- Cost     O(1) a source
-- flags: none
function scripts.importstatuses()
  for i = 1, #ARGV, 6 do
    local n = source.number(ARGV[i])
    local s = n and source.get(n)
    if s and s.gate then
      local c = source.counts(s)
      c.limited, c.row, c.success, c.failure = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
      source.count(s, 'done', tonumber(ARGV[i + 5]))
    end
  end
  finish(false)
  return 1
end

-- Reads what a shard counts, and what only rises there.
--
-- ARGV     none
-- Returns  fence, versions of rules and holds, the counters
-- Cost     O(1)
-- flags: no-writes
function scripts.exporttotals()
  local c = shard.counts()
  local out = { decimal(c.fence), shard.rules, shard.holds }
  for i, field in ipairs(SHARD_COUNTERS) do out[i + 3] = c[field] end
  return out
end

-- Raises what only rises in a shard, and adds to what it counts. The first sweep finds the
-- longest outage, so that collectors have time to renew their leases.
--
-- ARGV     fence, versions of rules and holds, what is added to the counters
-- Returns  1
-- Cost     O(1)
-- flags: none
function scripts.importtotals()
  local c = shard.counts()
  c.fence, c.changed = max(c.fence, tonumber(ARGV[1])), true
  for i, field in ipairs(SHARD_COUNTERS) do shard.tally(field, tonumber(ARGV[i + 3])) end
  for i, of in ipairs({ 'rules', 'holds' }) do
    local version = max(shard[of], tonumber(ARGV[i + 1]))
    if version > shard[of] then call('SET', key.version(of), decimal(version)) end
  end
  call('HSETNX', key.keeper, 'swept', decimal(now - 30000))
  finish(false)
  return 1
end

-- Notes used client tokens of a step. Of several shards one is the home of their collectors,
-- where polls look for them.
--
-- ARGV     step, whether the store has several shards (0, 1); digests of holders
-- Returns  1
-- Cost     O(1) a token
-- flags: none
function scripts.importtokens()
  local step, digests = tonumber(ARGV[1]), args_from(3)
  token.used.add(step, digests)
  if ARGV[2] == '1' then token.polled.note_for(digests, 2 * 600000) end
  shard.tally('used', max(step - shard.counts().used, 0))
  finish(false)
  return 1
end
