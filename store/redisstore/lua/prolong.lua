-- Notes client tokens at the collectors' home shard for longer than a poll does, since
-- what they were granted may stand for longer.
--
-- KEYS[1]  the shard key
-- ARGV     how long at least, in ms; the holders' digests
-- Returns  1
-- Cost     O(1) a client token
noted.polled.note_for({ unpack(ARGV, 2) }, tonumber(ARGV[1]))
return 1
