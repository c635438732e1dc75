package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// step is one operation on the stores.
type step struct {
	name string // of the operation, for the tally
	text string // for the history
	// do runs it on one store and gives the complete answer.
	do func(i *Instance) (any, error)
	// see holds the first store's answer against what the world allows, and
	// brings the world up to date.
	see func(answer any) error
}

// model is one run.
type model struct {
	ctx       context.Context //nolint:containedctx // one run has one context, as a test has
	instances []Instance
	config    ModelConfig
	rand      *rand.Rand
	access    *rand.Rand // of genAccess alone: the other operations of a seed do not depend on it
	world     *world
	steps     int
	history   []string
	// queued are steps that belong to the one before them.
	queued []step
	// tokens counts client tokens and calls.
	tokens int
	// sources and collectors are what the generators choose from.
	sources    []*modelSource
	collectors []*modelCollector
	recent     []spent
	limited    map[string]bool // ids of sources that have a limit
	clockWas   time.Time       // before the step that moves it
	jumped     int             // the step of the last jump of the clock
	back       time.Duration   // to step the clock back by next
}

// chance is true in percent of the calls.
func (m *model) chance(percent int) bool { return m.rand.IntN(100) < percent }

// one chooses one of the values.
func one[T any](m *model, values ...T) T { return values[m.rand.IntN(len(values))] }

// modelPools are what sources are in and claims ask for.
func modelPools() []string { return []string{pool, pool, pool, "browser"} }

// modelSource is a source that the generators choose from.
type modelSource struct {
	gate   dispatch.SourceGate
	before dispatch.SourceGate // an older version, or one of a deleted uid
	until  time.Time           // of a deleted one: each store forgets it when it likes from then on; else zero
	scope  string
	number int // of its uid
}

// modelCollector is a collector that the generators choose from.
type modelCollector struct {
	id     string
	number int // of its session
}

func (c *modelCollector) session() string { return "s" + strconv.Itoa(c.number) }

// modelQueues are few, so that what happens to them collides.
func modelQueues() []string {
	return []string{
		"a.test", "b.a.test", "c.a.test", "c.a.test:81", "d.test", "e.org", "f.e.org", "g.e.org:8080", "h.org", "localhost",
	}
}

// spent is a claim that was made, to be repeated or given back.
type spent struct {
	collector, session, token, call string
	shard                           int
	grants                          []dispatch.Grant
	at                              time.Time // when claimed last
}

// as is an answer in its type; a step sees what it did itself.
func as[T any](answer any) T {
	typed, ok := answer.(T)
	if !ok {
		panic(fmt.Sprintf("storetest: an answer is a %T", answer))
	}
	return typed
}

// clockText is a time for the history.
func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("02T15:04:05.000")
}

// token gives a client token and call that nobody has used.
func (m *model) token() (token, call string) {
	m.tokens++
	return "t" + strconv.Itoa(m.tokens), "k" + strconv.Itoa(m.tokens)
}

// leased lists tasks that are leased by the world's account.
func (m *model) leased() []*modelTask {
	var tasks []*modelTask
	for _, t := range m.world.all() {
		if t.Lease != nil {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// stale is a grant of a claim not long ago, held or not; nil when none was.
func (m *model) stale() *dispatch.Grant {
	if len(m.recent) == 0 {
		return nil
	}
	if s := m.recent[m.rand.IntN(len(m.recent))]; len(s.grants) > 0 {
		return &s.grants[m.rand.IntN(len(s.grants))]
	}
	return nil
}

func (m *model) collector(id string) *modelCollector {
	return m.collectors[slices.IndexFunc(m.collectors, func(c *modelCollector) bool { return c.id == id })]
}

// followed is a step with others right after it, which are made when it has been seen.
func (m *model) followed(s step, then func() []step) step {
	see := s.see
	s.see = func(answer any) error {
		if see != nil {
			if err := see(answer); err != nil {
				return err
			}
		}
		m.queued = append(m.queued, then()...)
		return nil
	}
	return s
}

// waiting lists tasks that wait by the world's account.
func (m *model) waiting() []*modelTask {
	var tasks []*modelTask
	for _, t := range m.world.all() {
		if t.State.Waiting() {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
