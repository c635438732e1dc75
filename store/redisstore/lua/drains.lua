-- Reads the drains of collectors that hold.
--
-- KEYS[1]  the shard key of shard 0
-- ARGV     none
-- Returns  each of them (JSON), in no order
-- Cost     O(drains)
--
-- flags: no-writes
local out = {}
for _, drain in ipairs(call('HVALS', P .. 'drains')) do
  local till, encoded = string.match(drain, '^(%d+)\n(.*)$')
  if tonumber(till) > now then out[#out + 1] = encoded end
end
return out
