-- Counts links of a source that were not followed (dispatch.Sources.CountFiltered).
--
-- KEYS[1]  the shard key
-- ARGV     uid; the counts by reason, packed
-- Returns  1
-- Cost     O(1)
--
-- uses: filtered
count_filtered(ARGV[1], ARGV[2])
return 1
