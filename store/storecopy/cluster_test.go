package storecopy_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/store/backend/dir"
	"github.com/waggle-crawl/waggle/store/backend/redis"
	"github.com/waggle-crawl/waggle/store/redistest"
)

// TestCopy_cluster copies into a Cluster of one node with as many shards as a new store gets there, and back.
func TestCopy_cluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithCluster())
	options, err := goredis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for client.Set(t.Context(), "probe", "x", 0).Err() != nil { // the node takes the slots over a little later
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	from := openFile(t, 0, dir.Config{Dir: t.TempDir()})
	f := fill(t, from)
	cluster := openRedis(t, 0, redis.Config{URL: "redis+cluster://" + server.Addr(), CopyOf: "file"})
	if cluster.Shards() != 64 {
		t.Errorf("there are %d shards", cluster.Shards())
	}
	now, there := copyInto(t, from, cluster)
	if misfits := cluster.Check(); len(misfits) > 0 {
		t.Errorf("the copy in the cluster does not fit together: %v", misfits)
	}
	now, back := copyInto(t, now, openFile(t, 0, dir.Config{Dir: t.TempDir(), CopyOf: "redis"}))
	if there.From != back.To {
		t.Errorf("copied\n%s, and back\n%s", there.From, back.To)
	}
	f.check(now)
	if err := now.Close(); err != nil {
		t.Error(err)
	}
}
