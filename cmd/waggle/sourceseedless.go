package main

import (
	"context"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// seedless looks which of the sources of a trigger have no seeds, where it left some as they
// were: the first of them, and how many. It looks at as many as fit on a screen by id, and in
// a page by filter; what it cannot read it says nothing of, as the trigger itself is done.
func (c *client) seedless(ctx context.Context, ids []string, filter *pb.Filter, t *bulkTotal) (first string, n int) {
	if t.changed == t.matched || len(ids) > shownResults || len(ids) == 0 && t.matched > pageSize {
		return "", 0
	}
	look := func(s *pb.Source) {
		if len(s.GetSpec().GetSeeds()) > 0 {
			return
		}
		if n++; n == 1 {
			first = s.GetId()
		}
	}
	for _, id := range ids {
		if reply, err := c.sources.GetSource(ctx, &pb.GetSourceRequest{Id: id}); err == nil {
			look(reply.GetSource())
		}
	}
	if len(ids) > 0 {
		return first, n
	}
	_, err := readPages(0, func(size int32, token string) (*pb.ListSourcesResponse, error) {
		return c.sources.ListSources(ctx, &pb.ListSourcesRequest{
			IdPrefix: filter.GetSourceIdPrefix(), Pool: filter.GetPool(), Labels: filter.GetLabels(), WholeSpecs: true, PageSize: size, PageToken: token,
		})
	}, func(p *pb.ListSourcesResponse) int {
		for _, s := range p.GetSources() {
			look(s)
		}
		return len(p.GetSources())
	})
	if err != nil {
		return "", 0
	}
	return first, n
}
