package status

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// pageSize is small enough that a page comes well before the time for reading is over.
const pageSize = 500

// read reads the lists beside each other, each as far as it comes in the time.
func (l *look) read(ctx context.Context) {
	l.sources.by = map[pb.SourceHealth]*healthCount{}
	var lists sync.WaitGroup
	var mu sync.Mutex // guards findings
	list := func(what string, read func() (whole bool, err error)) {
		lists.Go(func() {
			whole, err := read()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				l.add(kindUnread, 1, []string{what}, "waggle stats", what+" could not be read: "+client.RefusalText(err))
			case !whole && what != "sources": // whose number the first line has
				l.add(kindUnread, 1, []string{what}, "waggle stats", "there are too many "+what+" to look at all of them")
			}
		})
	}
	list("sources", func() (bool, error) {
		whole, err := pages(ctx, l.begun, l.client.Sources.ListSources, &pb.ListSourcesRequest{Gates: true, PageSize: pageSize}, func(p *pb.ListSourcesResponse) {
			for _, s := range p.GetSources() {
				l.sources.take(s)
			}
		})
		l.sources.whole = whole
		return whole, err
	})
	list("holds", func() (bool, error) {
		return pages(ctx, l.begun, l.client.Holds.ListHolds, &pb.ListHoldsRequest{Blocks: true, PageSize: pageSize}, func(p *pb.ListHoldsResponse) {
			for _, h := range p.GetHolds() {
				switch {
				case h.GetName() == describe.WaggleHold:
					l.blocked = append(l.blocked, h)
				case h.GetTarget().GetSourceId() == "": // those on sources are seen with the sources
					l.holds = append(l.holds, h)
				}
			}
		})
	})
	list("pools", func() (bool, error) {
		return pages(ctx, l.begun, l.client.Admin.ListPools, &pb.ListPoolsRequest{PageSize: pageSize}, func(p *pb.ListPoolsResponse) { l.pools = append(l.pools, p.GetPools()...) })
	})
	list("collectors", func() (bool, error) {
		return pages(ctx, l.begun, l.client.Admin.ListCollectors, &pb.ListCollectorsRequest{PageSize: pageSize}, func(p *pb.ListCollectorsResponse) {
			l.workers = append(l.workers, p.GetCollectors()...)
		})
	})
	list("leases", func() (bool, error) {
		return pages(ctx, l.begun, l.client.Admin.ListLeases, &pb.ListLeasesRequest{PageSize: pageSize}, func(p *pb.ListLeasesResponse) { l.leases = append(l.leases, p.GetLeases()...) })
	})
	lists.Wait()
}

// pages reads a list until its end or until the time for reading is over.
func pages[Q proto.Message, P client.Page](
	ctx context.Context, begun time.Time, list func(context.Context, Q, ...grpc.CallOption) (P, error), request Q, take func(P),
) (whole bool, err error) {
	err = client.EachPage(ctx, list, request, func(page P) (bool, error) {
		take(page)
		whole = page.GetNextPageToken() == ""
		return time.Since(begun) < readLimit, nil
	})
	return whole, err
}

// take counts a source.
func (s *sources) take(source *pb.Source) {
	s.seen++
	status := source.GetStatus()
	s.released = append(s.released, status.GetReleasedTasks()...)
	health := status.GetHealth()
	if health == pb.SourceHealth_SOURCE_HEALTH_HELD && len(status.GetHolds()) == 0 && status.GetCanceledSeeds() == 0 {
		health = pb.SourceHealth_SOURCE_HEALTH_UNSPECIFIED // the hold is not its own, and has a finding of its own
	}
	due := status.GetNextDueTime()
	if due != nil && (s.next == nil || due.AsTime().Before(s.next.GetStatus().GetNextDueTime().AsTime())) {
		s.next = source
	}
	count := s.by[health]
	if count == nil {
		count = &healthCount{gates: map[pb.GateKind]int{}}
		s.by[health] = count
	}
	count.count++
	if gates := status.GetGates(); len(gates) > 0 {
		count.gates[gates[0].GetKind()]++
	}
	count.worst = append(count.worst, source)
	slices.SortStableFunc(count.worst, func(a, b *pb.Source) int { return cmp.Compare(badness(b.GetStatus()), badness(a.GetStatus())) })
	count.worst = count.worst[:min(len(count.worst), shownNames)]
}

// badness orders sources of one health.
func badness(s *pb.SourceStatus) float64 {
	return float64(s.GetBreaker().GetGivenUpCycles())*1e6 + float64(s.GetConsecutiveFailures())*1e3 + s.GetLag().AsDuration().Hours()
}
