-- Which identities collector ids belong to, in the home shards of the collectors.

-- Gives a collector id to an identity, or keeps it for that (dispatch.Bindings.BindCollector).
--
-- ARGV     collector, identity; for how long, and by how much less it may be kept, in ms
-- Returns  whose it is
-- Cost     O(1)
function scripts.bind()
  local name, identity, ends = key.binding(ARGV[1]), ARGV[2], now + ARGV[3]
  local owner = call('GET', name)
  if owner and (owner ~= identity or ends < call('PEXPIRETIME', name) + 1 + ARGV[4]) then return owner end
  call('SET', name, identity, 'PXAT', decimal(ends - 1)) -- as expire_at
  return identity
end

-- Makes a collector id nobody's (dispatch.Bindings.ReleaseCollector).
--
-- ARGV     collector
-- Returns  whose it was ('' = nobody's)
-- Cost     O(1)
function scripts.release() return call('GETDEL', key.binding(ARGV[1])) or '' end
