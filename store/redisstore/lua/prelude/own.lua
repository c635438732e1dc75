-- The begin of all keys of the shard, for a script that needs nothing else.
local own_prefix

-- at each call
own_prefix = string.sub(KEYS[1], 1, -6)
