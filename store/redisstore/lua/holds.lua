-- Reads the holds of pools and collectors that stand.
--
-- KEYS[1]  the shard key
-- ARGV     none
-- Returns  each of them (JSON), in no order
-- Cost     O(holds)
--
-- flags: no-writes
local out = {}
for _, of in ipairs({ 'paused', 'drains' }) do
  for _, hold in ipairs(call('HVALS', P .. of)) do
    local till, encoded = string.match(hold, '^(%d+)\n(.*)$')
    if tonumber(till) > now then out[#out + 1] = encoded end
  end
end
return out
