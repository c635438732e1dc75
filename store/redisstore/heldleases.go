package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waggle-crawl/waggle/dispatch"
)

// heldFields is how many fields of what a collector holds Redis is asked for at
// once, about: a collector may hold any number of leases.
const heldFields = 100

// heldScan goes through what a collector holds in a shard. fields are those met, some
// more than once.
type heldScan struct {
	who    int // of those asked about
	key    string
	cursor uint64
	fields map[string]string
}

// addHeld counts the leases that all shards have for collectors.
func (s *Store) addHeld(ctx context.Context, records []*dispatch.CollectorRecord) error {
	var open []*heldScan
	for shard := range s.shards {
		for i, r := range records {
			if r != nil {
				open = append(open, &heldScan{who: i, key: s.keys.shard(shard).Held(r.Info.ID)})
			}
		}
	}
	for len(open) > 0 {
		some := open[:min(len(open), maxReads)]
		if err := s.scanHeld(ctx, some); err != nil {
			return err
		}
		open = open[len(some):]
		for _, scan := range some {
			if scan.cursor != 0 {
				open = append(open, scan)
				continue
			}
			n, err := countGrants(scan.fields)
			if err != nil {
				return fmt.Errorf("count what collector %s holds: %w", records[scan.who].Info.ID, err)
			}
			records[scan.who].Held += n
		}
	}
	return nil
}

// scanHeld takes each scan a step further, all in one round trip.
func (s *Store) scanHeld(ctx context.Context, scans []*heldScan) error {
	steps, err := read(ctx, "count held leases", func() ([]*redis.ScanCmd, error) {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.ScanCmd, len(scans))
		for i, scan := range scans {
			cmds[i] = pipe.HScan(ctx, scan.key, scan.cursor, "", heldFields)
		}
		_, err := pipe.Exec(ctx)
		return cmds, err
	})
	if err != nil {
		return err
	}
	for i, scan := range scans {
		var found []string
		found, scan.cursor = steps[i].Val()
		if scan.fields == nil {
			scan.fields = make(map[string]string, len(found)/2)
		}
		for k := 0; k+1 < len(found); k += 2 {
			scan.fields[found[k]] = found[k+1]
		}
	}
	return nil
}

// countGrants counts the tasks in what a collector holds ([shardKeys.Held]).
func countGrants(held map[string]string) (tasks int64, err error) {
	for field, value := range held {
		switch strings.IndexByte(field, '/') {
		case 0: // of one task
			tasks++
		case -1:
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%.100q of grant %.100q: %w", value, field, err)
			}
			tasks += n
		}
	}
	return tasks, nil
}
