package redisstore

import "github.com/waggle-crawl/waggle/dispatch"

// LockKey names the lock of a task for tests that look at it.
func LockKey(s *Store, prefix string, id dispatch.TaskID) string {
	shard, _ := s.shardOfTask(id)
	return keys{prefix}.shard(shard).Lock(id)
}

// TaskKey names the record of a task for tests that look at it.
func TaskKey(s *Store, prefix string, id dispatch.TaskID) string {
	shard, _ := s.shardOfTask(id)
	return keys{prefix}.shard(shard).Task(id)
}
