-- Counts by state and of events, collected while a script runs and written once
-- at its end: per shard in the shard key, per source in its key. known has those
-- of the shard that were read already, fields what else is written to its key.
local totals, by_source, known, fields
local rules_version -- of the queue rules

-- Reads counts of the shard that the call is going to change, with the version of
-- the rules.
local function read_shard(...)
  local names, found = { ... }, call('HMGET', SHARD, 'rules', ...)
  rules_version = tonumber(found[1] or '0')
  for i, name in ipairs(names) do known[name] = tonumber(found[i + 1] or '0') end
end

local function tally(field, n)
  if n ~= 0 then totals[field] = (totals[field] or 0) + n end
end

local function tally_source(uid, field, n)
  local counts = by_source[uid]
  if not counts then counts = {}; by_source[uid] = counts end
  counts[field] = (counts[field] or 0) + n
end

local function count(uid, field, n)
  tally(field, n)
  tally_source(uid, field, n)
end

local STATE_FIELD = { [1] = 'scheduled', [2] = 'ready', [3] = 'leased', [4] = 'done', [5] = 'dead', [6] = 'canceled' }

-- at each call
totals, by_source, known, fields, rules_version = {}, {}, {}, {}, nil
