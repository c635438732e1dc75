-- The names of keys, as keys.go has them; what each holds is written there.
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
local function queue_lanes_key(name) return P .. 'ql:' .. name end
local function queue_open_key(a) return P .. 'qo:' .. a.pool .. ':' .. a.queue end
local function queue_wait_key(a) return P .. 'qw:' .. a.pool .. ':' .. a.queue end
local function pool_open_key(pool) return P .. 'po:' .. pool end
local function pool_wait_key(pool) return P .. 'pw:' .. pool end

-- Of client tokens that were used: the step of time in which they are noted (keys.go), the
-- key of a step, those of the steps that are asked for them, and how one is noted.
local used = {}
do
  local STEP = 600000 -- dispatch.TokenMemory
  local of, step, this, last, ahead

  function used.step(at) return floor(at / STEP) end
  function used.key(at) return P .. 'used:' .. decimal(at) end

  -- The keys of this step, the one before it, and the one after it, of before a step back.
  function used.keys()
    local at = used.step(now)
    if of ~= P or step ~= at then of, step, this, last, ahead = P, at, used.key(at), used.key(at - 1), used.key(at + 1) end
    return this, last, ahead
  end

  -- Notes the digests of client tokens as used. Sweeps remove the set, without holding up
  -- Redis as the end of a large one does; its end is for what they do not know of: the
  -- shard key was lost, or the clock was ahead.
  function used.note(digests)
    local key = used.keys()
    call('SADD', key, unpack(digests))
    call('PEXPIREAT', key, decimal((step + 2) * STEP + DAY), 'NX')
  end
end

local LEASES, POOLS, QUEUES, IDLE, FORGET, SETTINGS

-- at each call
if new_shard then
  LEASES, POOLS, QUEUES = P .. 'leases', P .. 'pools', P .. 'queues'
  IDLE, FORGET, SETTINGS = P .. 'idle', P .. 'forget', P .. 'settings'
end
