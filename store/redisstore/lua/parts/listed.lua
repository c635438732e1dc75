-- Lists a source in an index of this home shard, or not ('0').
local function list(index, id, stands)
  if stands == '1' then call('ZADD', P .. index, 0, id) else call('ZREM', P .. index, id) end
end
