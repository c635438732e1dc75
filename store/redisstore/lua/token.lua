-- Client tokens are noted in sets, each for a step of time (internal/key): used are those of
-- whose grants the last lease has ended, polled those of polls, at the home of their
-- collector.
local function by_step(name, length)
  local sets = {}
  local step

  function sets.step(at) return floor(at / length) end
  function sets.key(at) return P .. name .. decimal(at) end

  -- Whether each of the digests is noted: in this step, the one before it, or the one after
  -- it, of before a step back of the clock; last is the last one that may have any.
  function sets.known(digests, last)
    step = sets.step(now)
    local known = {}
    for at = step - 1, min(step + 1, max(last or INF, step)) do
      local found = call('SMISMEMBER', sets.key(at), unpack(digests))
      for i = 1, #digests do known[i] = known[i] or found[i] == 1 end
    end
    return known
  end

  -- Sweeps remove the set, without holding up Redis as the end of a large one does; its end
  -- is for what they do not know of: when they were last was lost, or the clock was ahead.
  function sets.add(at, digests, has_end)
    call('SADD', sets.key(at), unpack(digests))
    if not has_end then call('PEXPIREAT', sets.key(at), decimal((at + 2) * length + DAY), 'NX') end
  end

  -- Notes digests for the rest of this step and the next one, in a set that may have its end.
  function sets.note(digests, has_end) sets.add(sets.step(now), digests, has_end) end

  -- Notes digests for so many ms at least. Each second step has them, so that a step back
  -- finds them in the one before or the one after it.
  function sets.note_for(digests, lasting)
    sets.note(digests)
    for at = sets.step(now) + 2, sets.step(now + lasting), 2 do sets.add(at, digests) end
  end

  return sets
end

token.used = by_step('used:', 600000) -- dispatch.TokenMemory
token.polled = by_step('polled:', 1200000) -- pollStep (renew.go)

-- The shard knows the last step that has used client tokens: later ones need no look, and its
-- set has its end.
function token.were_used(digests) return token.used.known(digests, shard.counts().used) end
function token.note_used(digests)
  local last, step = shard.counts().used, token.used.step(now)
  token.used.note(digests, last == step)
  shard.tally('used', max(step - last, 0))
end

-- Forgets the client tokens that were noted before the last step, given when leases were
-- last swept.
local MAX_STEPS = 1000 -- a week: what is from before a longer pause is among the first
function token.forget(swept)
  local last = shard.counts().used
  if last > 0 and last < token.used.step(now) - 1 then
    shard.tally('used', -last)
    shard.save()
    flush_writes()
  end
  if swept <= 0 then return end
  local keys = {}
  for _, sets in ipairs({ token.used, token.polled }) do
    local first = sets.step(swept) - 1
    for at = first, min(sets.step(now) - 2, first + MAX_STEPS) do keys[#keys + 1] = sets.key(at) end
  end
  if #keys > 0 then call('UNLINK', unpack(keys)) end
end

-- Records client tokens in the collectors' home shard for longer than a poll does, since
-- their leases may last longer.
--
-- ARGV     the minimum time in ms; the holders' digests
-- Returns  1
-- Cost     O(1) a client token
function scripts.prolong()
  token.polled.note_for(args_from(2), tonumber(ARGV[1]))
  return 1
end
