package auth

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// isNarrow reports whether a grant is for some sources only.
func (g *Grant) isNarrow() bool { return len(g.Sources) > 0 }

// outside is the error of a request that a grant does not cover.
type outside struct{ text string }

func (o *outside) Error() string { return o.text }

func outsidef(format string, args ...any) error { return &outside{fmt.Sprintf(format, args...)} }

// within reports by an [*outside] that a grant does not cover a request. sources finds the sources of tasks.
func (g *Grant) within(s scope, method string, req any, sources func(tasks []string) ([]string, error)) error {
	switch {
	case s == ofNone || !g.isNarrow():
		return nil
	case s == ofAll:
		return outsidef("%s needs a grant for all sources", shortName(method))
	}
	return g.holdsSources(req, sources)
}

// maxTasks is how many tasks a request may name.
const maxTasks = 1000

// holdsSources checks the sources of a request.
func (g *Grant) holdsSources(req any, sources func(tasks []string) ([]string, error)) error {
	named, err := sourcesOf(req)
	if err != nil {
		return err
	}
	if tasks := tasksOf(req); len(tasks) > maxTasks {
		return outsidef("the request names %d tasks; the limit is %d", len(tasks), maxTasks)
	} else if len(tasks) > 0 {
		found, err := sources(tasks)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(found, func(id string) bool { return !g.holdsSource(id) }) {
			return outsidef("a task of the request is of another source")
		}
		named.some = true
	}
	if named.filter != nil {
		if err := g.holdsFilter(named.filter); err != nil {
			return err
		}
	} else if !named.some {
		return outsidef("the request must name a source that begins with %s", strings.Join(g.Sources, " or "))
	}
	for _, id := range named.ids {
		if !g.holdsSource(id) {
			return outsidef("the source or scope %.80q does not begin with %s", id, strings.Join(g.Sources, " or "))
		}
	}
	return nil
}

func (g *Grant) holdsSource(id string) bool {
	return slices.ContainsFunc(g.Sources, func(prefix string) bool { return strings.HasPrefix(id, prefix) })
}

func (g *Grant) holdsFilter(f *pb.Filter) error {
	if id := f.GetSourceId(); id != "" && g.holdsSource(id) {
		return nil
	}
	if prefix := f.GetSourceIdPrefix(); prefix != "" && g.holdsSource(prefix) {
		return nil
	}
	return outsidef("the filter must have a source_id or source_id_prefix that begins with %s", strings.Join(g.Sources, " or "))
}

// sourceNames are the sources that a request is about.
type sourceNames struct {
	ids    []string
	some   bool // the request names sources, though the list may be empty
	filter *pb.Filter
}

// sourcesOf finds the sources of a request.
func sourcesOf(req any) (sourceNames, error) {
	var n sourceNames
	add := func(ids ...string) { n.ids, n.some = append(n.ids, ids...), true }
	switch r := req.(type) {
	case *pb.SubmitTasksRequest:
		for _, item := range r.GetItems() {
			add(item.GetSourceId())
		}
	case *pb.ApplySourcesRequest:
		for _, spec := range r.GetSpecs() {
			add(specNames(spec)...)
		}
	case *pb.GetSourceHistoryRequest:
		add(r.GetId())
	case *pb.GetSourceRequest:
		add(r.GetId())
	}
	if r, ok := req.(interface{ GetSpec() *pb.SourceSpec }); ok {
		add(specNames(r.GetSpec())...)
	}
	if r, ok := req.(interface{ GetSourceId() string }); ok && r.GetSourceId() != "" {
		add(r.GetSourceId())
	}
	if r, ok := req.(interface{ GetIds() []string }); ok && len(r.GetIds()) > 0 {
		add(r.GetIds()...)
	}
	if r, ok := req.(interface{ GetTargets() []*pb.HoldTarget }); ok {
		for _, target := range r.GetTargets() {
			if !proto.Equal(target, &pb.HoldTarget{SourceId: target.GetSourceId()}) || target.GetSourceId() == "" {
				return n, outsidef("a hold of anything but a source needs a grant for all sources")
			}
			add(target.GetSourceId())
		}
	}
	if r, ok := req.(interface{ GetFilter() *pb.Filter }); ok {
		n.filter = r.GetFilter()
	}
	return n, nil
}

// specNames are the source of a spec and its scope: sources of one scope share their tasks.
func specNames(spec *pb.SourceSpec) []string {
	if spec.GetScope() == "" {
		return []string{spec.GetId()}
	}
	return []string{spec.GetId(), spec.GetScope()}
}

// tasksOf are the tasks that a request names by their ids.
func tasksOf(req any) []string {
	switch r := req.(type) {
	case interface{ GetTaskIds() []string }:
		return r.GetTaskIds()
	case interface{ GetTaskId() string }:
		if r.GetTaskId() != "" {
			return []string{r.GetTaskId()}
		}
	}
	return nil
}

// collectorOf is the id of the collector that makes a call.
func collectorOf(req any) string {
	switch r := req.(type) {
	case interface{ GetCollectorId() string }:
		return r.GetCollectorId()
	case interface{ GetCollector() *pb.CollectorInfo }:
		return r.GetCollector().GetId()
	case *pb.SubmitDiscoveredRequest:
		return holderOf(r.GetLeaseToken())
	}
	return ""
}

// CollectorOf is the id of the collector that makes a call; "" if no collector makes it, or none can have the id.
func CollectorOf(req any) string {
	if release, ok := req.(*pb.ReleaseCollectorRequest); ok && release != nil {
		return "" // an operator's
	}
	if id := collectorOf(req); isCollectorID(id) {
		return id
	}
	return ""
}

// isCollectorID reports whether a collector can have an id.
func isCollectorID(id string) bool {
	other := func(r rune) bool { return !isNameRune(r) }
	return id != "" && len(id) <= bounds.MaxIDLength && !strings.ContainsFunc(id, other)
}

// holderOf is the collector that a lease token names; "" of one that names none, which no lease has.
func holderOf(token string) string {
	parsed, err := dispatch.ParseLeaseToken(token)
	if err != nil {
		return ""
	}
	return parsed.Collector
}

// use is how a request uses a collector id.
type use struct {
	collector string
	pools     []string // that a fetch is from
}

func useOf(req any) *use {
	u := &use{collector: collectorOf(req)}
	if fetch, ok := req.(*pb.FetchTaskRequest); ok {
		if u.pools = fetch.GetPools(); len(u.pools) == 0 {
			u.pools = []string{dispatch.DefaultPool}
		}
	}
	return u
}

// holdsCollector checks the collector of a request, and its pools.
func (g *Grant) holdsCollector(u *use) error {
	if len(g.Collectors) > 0 && !slices.ContainsFunc(g.Collectors, func(pattern string) bool { return matches(pattern, u.collector) }) {
		return outsidef("collector_id %.80q is not of %s", u.collector, strings.Join(g.Collectors, " or "))
	}
	for _, pool := range u.pools {
		if len(g.Pools) > 0 && !slices.Contains(g.Pools, pool) {
			return outsidef("pool %.80q is not of %s", pool, strings.Join(g.Pools, ", "))
		}
	}
	return nil
}
