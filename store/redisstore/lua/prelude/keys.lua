-- The names of keys, as internal/key has them; what each holds is written there.
local function task_key(id) return P .. 't:' .. id end
local function details_key(id) return P .. 'd:' .. id end
local function history_key(id) return P .. 'h:' .. id end
local function lock_key(id) return P .. 'lock:' .. id end
local function held_key(collector) return P .. 'held:' .. collector end
local function keep_key(collector) return P .. 'keep:' .. collector end
local function source_key(uid) return P .. 'src:' .. uid end
local function lanes_key(uid) return P .. 'lanes:' .. uid end
local function lane_key(n) return P .. 'lane:' .. n end
local function tasks_key(n) return P .. 'lt:' .. n end
local function dead_key(n) return P .. 'ld:' .. n end
local function canceled_key(n) return P .. 'lc:' .. n end
local function queue_key(name) return P .. 'queue:' .. name end
local function queue_cause_key(name) return P .. 'cause:' .. name end
local function queue_lanes_key(name) return P .. 'ql:' .. name end
local function queue_open_key(a) return P .. 'qo:' .. a.pool .. ':' .. a.queue end
local function queue_wait_key(a) return P .. 'qw:' .. a.pool .. ':' .. a.queue end
local function pool_open_key(pool) return P .. 'po:' .. pool end
local function pool_wait_key(pool) return P .. 'pw:' .. pool end

-- Client tokens are noted in sets, each for a step of time (internal/key): used are those of whose
-- grants the last lease has ended, polled those of polls, at the home of their collector.
local noted = {}
do
  local function by_step(name, length)
    local sets, of, step, this, last, ahead = {}, nil, nil, nil, nil, nil

    function sets.step(at) return floor(at / length) end
    function sets.key(at) return P .. name .. decimal(at) end

    -- The keys of this step, the one before it, and the one after it, of before a step back.
    local function keys()
      local at = sets.step(now)
      if of ~= P or step ~= at then of, step, this, last, ahead = P, at, sets.key(at), sets.key(at - 1), sets.key(at + 1) end
      return this, last, ahead
    end

    -- Whether each of the digests is noted.
    function sets.known(digests)
      local since, before, after = keys()
      since, before = call('SMISMEMBER', since, unpack(digests)), call('SMISMEMBER', before, unpack(digests))
      after = call('SMISMEMBER', after, unpack(digests))
      for i = 1, #digests do since[i] = since[i] + before[i] + after[i] > 0 end
      return since
    end

    -- Sweeps remove the set, without holding up Redis as the end of a large one does; its
    -- end is for what they do not know of: the shard key was lost, or the clock was ahead.
    local function add(key, at, digests)
      call('SADD', key, unpack(digests))
      call('PEXPIREAT', key, decimal((at + 2) * length + DAY), 'NX')
    end

    -- Notes digests for the rest of this step and the next one.
    function sets.note(digests)
      local key = keys()
      add(key, step, digests)
    end

    -- Notes digests for so many ms at least. Each second step has them, so that a step
    -- back finds them in the one before or the one after it.
    function sets.note_for(digests, lasting)
      sets.note(digests)
      for at = step + 2, sets.step(now + lasting), 2 do add(sets.key(at), at, digests) end
    end

    return sets
  end

  noted.used = by_step('used:', 600000) -- dispatch.TokenMemory
  noted.polled = by_step('polled:', 1200000) -- pollStep (renew.go)
end

local LEASES, POOLS, QUEUES, IDLE, FORGET

-- at each call
if new_shard then
  LEASES, POOLS, QUEUES, IDLE, FORGET = P .. 'leases', P .. 'pools', P .. 'queues', P .. 'idle', P .. 'forget'
end
