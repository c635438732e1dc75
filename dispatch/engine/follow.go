package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
)

// Follower is a compiled [dispatch.Follow] of a source.
type Follower struct {
	maxDepth int
	hosts    []string
	named    bool // the rule names the hosts; else they are the seeds'
	patterns dispatch.Patterns
}

// newFollower compiles the source's follow rule; nil if it has none. The error is a [dispatch.FieldError].
func newFollower(spec *dispatch.SourceSpec) (*Follower, error) {
	rule := spec.Follow
	if rule == nil {
		return nil, nil
	}
	f := &Follower{maxDepth: bounds.MaxDepth, hosts: slices.Clone(rule.AllowHosts), named: len(rule.AllowHosts) > 0}
	if rule.MaxDepth != nil {
		f.maxDepth = *rule.MaxDepth
	}
	if len(f.hosts) == 0 {
		for _, seed := range spec.Seeds {
			if host, err := canonical.Host(seed.URL); err == nil && !slices.Contains(f.hosts, host) {
				f.hosts = append(f.hosts, host)
			}
		}
	}
	var err error
	f.patterns, err = rule.Compile()
	return f, err
}

// passesHost reports whether an item from a page of t may have any host if the rule names none. That is true for the
// item of a feed, and for the target of such an item's redirect.
func passesHost(t *dispatch.Task, relation dispatch.Relation) bool {
	if relation == dispatch.RelationRedirect {
		return t.Relation == dispatch.RelationFeedItem
	}
	return relation == dispatch.RelationFeedItem && t.Relation != dispatch.RelationFeedItem
}

// refuses returns why an item is not followed, by its depth and host; dispatch.FilterNone: it is, unless its URL is
// refused. anyHost is from [passesHost]. An item without a URL has no host to check.
func (f *Follower) refuses(to dispatch.Target, depth int, anyHost bool) (dispatch.FilterReason, string) {
	switch {
	case f == nil && anyHost:
		return dispatch.FilterNone, ""
	case f == nil:
		return dispatch.FilterNoRule, "the source has no follow rule"
	case depth > f.maxDepth:
		return dispatch.FilterDepth, fmt.Sprintf("depth %d is over follow.max_depth %d", depth, f.maxDepth)
	case to.Canonical != "" && (f.named || !anyHost) && !f.allows(to.Host):
		return f.refusesHost(to)
	}
	return dispatch.FilterNone, ""
}

// refusesURL returns why an item is not followed, by the patterns for its URL; dispatch.FilterNone: it is. Only exclude
// applies to a move (see [Follower.refusesMove]).
func (f *Follower) refusesURL(to dispatch.Target, move bool) (dispatch.FilterReason, string) {
	matches := func(re *regexp.Regexp) bool { return re.MatchString(to.Canonical) }
	if include := f.patterns.Include; !move && len(include) > 0 && !slices.ContainsFunc(include, matches) {
		return dispatch.FilterInclude, "no follow.include matches"
	}
	i := slices.IndexFunc(f.patterns.Exclude, matches)
	if i < 0 {
		return dispatch.FilterNone, ""
	}
	return dispatch.FilterExclude, fmt.Sprintf("follow.exclude[%d] matches", i)
}

// refusesMove returns why the target of a redirect is not crawled, by its host, if the chain of redirects began at a seed
// or a submitted task; dispatch.FilterNone: it is, unless its URL is refused. Such a chain needs no rule, since its head
// needs none; only named hosts apply.
func (f *Follower) refusesMove(to dispatch.Target) (dispatch.FilterReason, string) {
	if f != nil && to.Canonical != "" && f.named && !f.allows(to.Host) {
		return f.refusesHost(to)
	}
	return dispatch.FilterNone, ""
}

func (f *Follower) refusesHost(to dispatch.Target) (dispatch.FilterReason, string) {
	if f.named {
		return dispatch.FilterHost, fmt.Sprintf("host %q is not among follow.allow_hosts", to.Host)
	}
	return dispatch.FilterHost, fmt.Sprintf("host %q is not a seed's, and follow.allow_hosts is empty", to.Host)
}

// allows reports whether a host is followed. A host of [canonical.URL] has a port only if it is not the scheme's, so a
// pattern without a port, except "*", means the default ports. Another port may be another owner's server. Patterns of
// queue rules are about the load of a host, so they mean all its ports.
func (f *Follower) allows(host string) bool {
	return slices.ContainsFunc(f.hosts, func(allowed string) bool {
		suffix, isSuffix := strings.CutPrefix(allowed, "*")
		return allowed == host || isSuffix && strings.HasSuffix(host, suffix)
	})
}

// Limits of a look at where seeds redirect to: seeds of a source, the first ones; redirects from a seed, as many as collectors
// follow by default; and tasks that are read at once.
const (
	movedSeeds   = 100
	maxMoves     = 10
	movesPerRead = 100
)

// Move is where the page of a seed is now.
type Move struct {
	Seed string // its URL, as the spec has it
	// To is the end of its redirects, as they were when it was last fetched. Lasting is as far as they are for good (301 and
	// 308); empty: the first is not, or no page was fetched at the end.
	To, Lasting string
	// Away: follow does not take the links of that page, since its host is not among those of the source.
	Away bool
	// Failure is of the last attempt there; nil: it succeeded, or there was none.
	Failure *dispatch.Failure

	hosts   []string // of each redirect
	fetched bool     // the page at the end
}

// Moves are where the seeds of each of the sources redirect to, of the first [movedSeeds] of a source; those that do not are left
// out.
func (d *Dispatcher) Moves(ctx context.Context, sources []*dispatch.Source) ([][]Move, error) {
	book, err := d.catalog.Rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("read queue rules: %w", err)
	}
	type walk struct {
		*Move
		source *dispatch.Source
		id     dispatch.TaskID
		passes bool // each redirect so far is for good
	}
	step := func(w walk, from *dispatch.Task, url, key, queue string) (walk, string) {
		to, err := dispatch.ResolveTarget(w.source.Spec.CanonicalRules, url, key, queue, book.QueueOf)
		if w.id = ""; err == nil {
			if from != nil {
				to = hopTarget(from, to, url)
			}
			w.id = dispatch.NewTaskID(dispatch.Identity{Scope: w.source.Scope(), Queue: to.Queue, Key: to.Key})
		}
		return w, to.Host
	}
	moves := make([][]Move, len(sources))
	var open []walk
	for n, source := range sources {
		seeds := source.Spec.Seeds[:min(len(source.Spec.Seeds), movedSeeds)]
		moves[n] = make([]Move, len(seeds))
		for i, seed := range seeds {
			moves[n][i].Seed = seed.URL
			if w, _ := step(walk{&moves[n][i], source, "", true}, nil, seed.URL, seed.Key, seed.Queue); w.id != "" {
				open = append(open, w)
			}
		}
	}
	for range maxMoves {
		var next []walk
		for page := range slices.Chunk(open, movesPerRead) {
			ids := make([]dispatch.TaskID, len(page))
			for i, w := range page {
				ids[i] = w.id
			}
			tasks, _, err := d.store.Tasks(ctx, ids, true)
			if err != nil {
				return nil, fmt.Errorf("read where seeds redirect to: %w", err)
			}
			for i, w := range page {
				if tasks[i] != nil {
					w.Failure = tasks[i].LastError
				}
				url, status := movedTo(tasks[i])
				w, host := step(w, tasks[i], url, "", "")
				if url == "" || w.id == "" {
					w.fetched = tasks[i] != nil && tasks[i].Result == dispatch.ResultSucceeded
					continue
				}
				w.To, w.hosts = url, append(w.hosts, host)
				if w.passes = w.passes && (status == http.StatusMovedPermanently || status == http.StatusPermanentRedirect); w.passes {
					w.Lasting = url
				}
				next = append(next, w)
			}
		}
		if open = next; len(open) == 0 {
			break
		}
	}
	for n, source := range sources {
		moves[n] = slices.DeleteFunc(moves[n], func(m Move) bool { return m.To == "" })
		for i := range moves[n] {
			if m := &moves[n][i]; !m.fetched {
				m.Lasting = ""
			}
		}
		if len(moves[n]) == 0 {
			continue
		}
		_, f, err := d.catalog.Source(ctx, source.ID)
		if err != nil || f == nil { // deleted since
			continue
		}
		for i := range moves[n] {
			m := &moves[n][i]
			host := m.hosts[len(m.hosts)-1]
			m.Away = !f.allows(host) && (f.named || !f.ofSite(host))
		}
	}
	return moves, nil
}

// ofSite reports whether a host is another name of the site of one of the seeds' hosts.
func (f *Follower) ofSite(host string) bool {
	site := siteOf(host)
	return site != "" && slices.ContainsFunc(f.hosts, func(own string) bool { return siteOf(own) == site })
}

// movedTo is where a task's page redirected to when it was last fetched, and the HTTP status of that; empty: nowhere.
func movedTo(t *dispatch.Task) (url string, status int) {
	if t == nil {
		return "", 0
	}
	for _, line := range slices.Backward(t.History) {
		if line.Result == dispatch.ResultSucceeded {
			return line.Moved, line.MovedStatus
		}
	}
	return "", 0
}

// widen adds to a follower of the seeds' hosts the other names of their sites that they redirect to, such as www.example.com
// of example.com. It returns nil if there are none.
func (d *Dispatcher) widen(ctx context.Context, source *dispatch.Source, f *Follower) (*Follower, error) {
	if f == nil || f.named {
		return nil, nil
	}
	if known := d.widened.Get(source.UID); known != nil && known.Value().version == source.Version {
		return known.Value().wide, nil
	}
	moves, err := d.Moves(ctx, []*dispatch.Source{source})
	if err != nil {
		return nil, err
	}
	wide := *f
	wide.hosts = slices.Clone(f.hosts)
	for _, move := range moves[0] {
		for _, host := range move.hosts {
			if !slices.Contains(wide.hosts, host) && f.ofSite(host) {
				wide.hosts = append(wide.hosts, host)
			}
		}
	}
	known := widened{version: source.Version}
	if len(wide.hosts) > len(f.hosts) {
		known.wide = &wide
	}
	d.widened.Set(source.UID, known, widenedTTL+time.Duration(min(len(source.Spec.Seeds), movedSeeds))*10*time.Millisecond)
	return known.wide, nil
}

// widenedTTL is how long it is known where the seeds of a source have moved to; each seed makes it longer.
const widenedTTL = time.Second

// widened is the follower of a version of a source with the hosts that seeds have moved to; nil for none.
type widened struct {
	version int64
	wide    *Follower
}

// siteOf is the registrable domain of a host; empty if it has none, as an address.
func siteOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	site, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return ""
	}
	return site
}
