package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// maxLeases bounds a page of ListLeases.
const maxLeases = 1000

// leasePosition is where a list of leases goes on: in a shard, with what its script
// gave to begin the next page with (lua/leases.lua).
type leasePosition struct {
	shard int
	rest  []string
}

// firstLease is where the list of the leases of a shard begins.
func firstLease(shard int) leasePosition { return leasePosition{shard, []string{"0", "", ""}} }

// String is the cursor, "<shard>/<scan>/<score>/<member>" and "/<lane>" of each lane
// that the scan has met.
func (p leasePosition) String() string {
	return strconv.Itoa(p.shard) + "/" + strings.Join(p.rest, "/")
}

func parseLeasePosition(cursor string) (p leasePosition, err error) {
	if cursor == "" {
		return firstLease(0), nil
	}
	parts := strings.Split(cursor, "/")
	p.shard, err = strconv.Atoi(parts[0])
	if p.rest = parts[1:]; err != nil || p.shard < 0 || len(p.rest) < len(firstLease(0).rest) {
		return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
	}
	const score = 1
	for i, part := range p.rest {
		if i == score && part != "" {
			_, err = strconv.ParseFloat(part, 64)
		} else if i != score+1 && part != "" {
			_, err = strconv.ParseUint(part, 10, 64)
		}
		if err != nil {
			return p, fmt.Errorf("%w: %.64q", dispatch.ErrPageToken, cursor)
		}
	}
	return p, nil
}

// ListLeases implements [dispatch.Leases]: shard after shard, lane after lane.
func (s *Store) ListLeases(ctx context.Context, cursor string, limit int) ([]*dispatch.Task, string, error) {
	p, err := parseLeasePosition(cursor)
	if err != nil {
		return nil, "", err
	}
	limit = min(max(limit, 1), maxLeases)
	var leases []*dispatch.Task
	bytes := 0
	for range maxListSteps {
		if p.shard >= s.shards {
			return leases, "", nil
		}
		if len(leases) >= limit || bytes >= bounds.MaxPageBytes {
			break
		}
		page, n, next, err := s.leasesStep(ctx, p, limit-len(leases), bounds.MaxPageBytes-bytes)
		if err != nil {
			return nil, "", err
		}
		if bytes > 0 && bytes+n > bounds.MaxPageBytes {
			break // what was found is too much, and begins the next page
		}
		leases, bytes, p = append(leases, page...), bytes+n, next
	}
	return leases, p.String(), nil
}

// leasesStep reads a page of the leases of a shard, and what they take. Of the limit on
// bytes the first lease is free.
func (s *Store) leasesStep(ctx context.Context, p leasePosition, limit, limitBytes int) ([]*dispatch.Task, int, leasePosition, error) {
	args := []any{limit, limitBytes}
	for _, part := range p.rest {
		args = append(args, part)
	}
	v, err := s.run(ctx, "list leases", s.scripts.leases, call{shard: p.shard, args: args})
	if err != nil {
		return nil, 0, p, err
	}
	r := readReply(v)
	now, found, bytes := instant(r.integer()), r.list(), int(r.integer())
	next := leasePosition{shard: p.shard}
	for r.more() {
		next.rest = append(next.rest, r.text())
	}
	if r.err != nil {
		return nil, 0, p, r.err
	}
	if len(next.rest) == len(firstLease(0).rest) && next.rest[0] == "" {
		next = firstLease(p.shard + 1)
	}
	leases, err := decodeListed(found, now)
	return leases, bytes, next, err
}
