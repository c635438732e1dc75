-- Records client tokens in the collectors' home shard for longer than a poll does, since
-- their leases may last longer.
--
-- KEYS[1]  the shard key
-- ARGV     the minimum time in ms; the holders' digests
-- Returns  1
-- Cost     O(1) a client token
noted.polled.note_for({ unpack(ARGV, 2) }, tonumber(ARGV[1]))
return 1
