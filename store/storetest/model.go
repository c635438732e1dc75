package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// DefaultSteps of a model test: enough for the outcomes that a run must meet. `make model`
// makes more.
const DefaultSteps = 50_000

// DefaultSeed makes every run of a model test the same one, so that a change is
// judged and not chance. Explore with others through WAGGLE_SEED.
const DefaultSeed = 20261121

// historyLength is how many operations a failed model test shows.
const historyLength = 30

// checkEvery so many steps everything in the store is read and compared.
const checkEvery = 400

// ModelConfig says what a model test does.
type ModelConfig struct {
	// Reference, when set, makes a second store that gets the same operations
	// on the same clock, and must give the same answers.
	Reference Factory
	// Shards of the stores; 0 = 2.
	Shards int
	// Steps; 0 = the environment's WAGGLE_STEPS, else DefaultSteps.
	Steps int
	// Seed of the random source; 0 = the environment's WAGGLE_SEED, else
	// DefaultSeed. It is always printed.
	Seed uint64
	// KeepRecords leaves out the operation that deletes a record and lets the indexes
	// stand, after which these are not exact until they are met.
	KeepRecords bool
}

// Model applies random operations to a store, and fails the test when an answer
// breaks the contract or differs from the reference's. It also fails when the
// run was too tame: when some operation or outcome never occurred. It prints
// its seed and the number of steps.
func Model(t *testing.T, store Factory, config ModelConfig) {
	t.Helper()
	if config.Steps == 0 {
		config.Steps = int(environment(t, "WAGGLE_STEPS", DefaultSteps))
	}
	config = config.withDefaults()
	opts := Options{Shards: config.Shards}
	instances := []Instance{store(t, opts)}
	if config.Reference != nil {
		instances = append(instances, config.Reference(t, opts))
	}
	if config.Seed == 0 {
		config.Seed = Seed(t)
	}
	began := time.Now()
	run, err := Explore(t.Context(), instances, config)
	t.Logf("model of %s: %d steps with WAGGLE_SEED=%d in %v",
		instances[0].Store.Kind(), run.Steps, config.Seed, time.Since(began).Round(time.Millisecond))
	if err != nil {
		t.Fatalf("step %d with WAGGLE_SEED=%d: %v\nthe last operations:\n%s",
			run.Steps, config.Seed, err, strings.Join(run.History, "\n"))
	}
	t.Log(run.tally())
	if missing := run.missing(); config.Steps >= DefaultSteps && len(missing) > 0 {
		t.Fatalf("in %d steps with WAGGLE_SEED=%d these never occurred: %s",
			run.Steps, config.Seed, strings.Join(missing, ", "))
	}
}

// ModelRun is what a model test did.
type ModelRun struct {
	// Steps that were made.
	Steps int
	// Counts of operations and outcomes, by name.
	Counts map[string]int
	// History has the last operations.
	History []string
}

// Explore is [Model] without a test: it applies random operations to the first
// store, and to the second, the reference, when there is one. The error is what
// the first store did wrong. A gate of mutants uses it: of a store with a guard
// taken out it must return an error.
func Explore(ctx context.Context, stores []Instance, config ModelConfig) (ModelRun, error) {
	m := newModel(ctx, stores, config.withDefaults())
	err := m.run()
	return ModelRun{Steps: m.steps, Counts: m.world.counts, History: m.history}, err
}

func (c ModelConfig) withDefaults() ModelConfig {
	c.Steps = cmp.Or(c.Steps, DefaultSteps)
	c.Shards = cmp.Or(c.Shards, 2)
	return c
}

// Seed is the seed of the environment's WAGGLE_SEED, or DefaultSeed.
func Seed(t *testing.T) uint64 {
	t.Helper()
	return environment(t, "WAGGLE_SEED", DefaultSeed)
}

// environment is the number in a variable of the environment, or without it other.
func environment(t *testing.T, name string, other uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return other
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		t.Fatalf("%s=%q is not a number from 0 to %d", name, text, 1<<31-1)
	}
	return n
}

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
	sessionOf  map[string]string // session by client token
	limited    map[string]bool   // ids of sources that have a limit
	clockWas   time.Time         // before the step that moves it
	jumped     int               // the step of the last jump of the clock
	back       time.Duration     // to step the clock back by next
}

func newModel(ctx context.Context, instances []Instance, config ModelConfig) *model {
	m := &model{
		ctx: ctx, instances: instances, config: config,
		rand: rand.New(rand.NewPCG(config.Seed, 1)),
	}
	for _, i := range instances {
		i.Clock.Set(start)
	}
	m.world = newWorld(config.Shards, instances[0].Clock)
	m.makeSources()
	m.queued = append([]step{m.ruleStep(dispatch.QueueRule{Pattern: "*", Settings: delayed(0, 4)})}, m.syncSteps()...)
	return m
}

// run runs all steps, then drains the store: what was created must settle.
func (m *model) run() error {
	for m.steps = 1; m.steps <= m.config.Steps; m.steps++ {
		next := m.pick()
		if err := m.apply(next); err != nil {
			return err
		}
		if m.steps%checkEvery == 0 {
			if err := m.checkAll(); err != nil {
				return fmt.Errorf("reading everything: %w", err)
			}
		}
	}
	m.steps--
	if err := m.drain(); err != nil {
		return fmt.Errorf("draining the store: %w", err)
	}
	return nil
}

// apply runs one step on all stores, compares, and lets the world see it.
func (m *model) apply(s step) error {
	m.note(s)
	m.world.count(s.name)
	var first, blurred any
	for n := range m.instances {
		answer, err := s.do(&m.instances[n])
		if err != nil {
			return fmt.Errorf("%s failed on the %s store: %w", s.name, m.instances[n].Store.Kind(), err)
		}
		seen := m.blur(answer)
		if n == 0 {
			first, blurred = answer, seen
			continue
		}
		if d := diff(reflect.ValueOf(blurred), reflect.ValueOf(seen), s.name); d != "" {
			return fmt.Errorf("the answer is not the reference's (got, want): %s%s", d, m.differences())
		}
	}
	m.history[len(m.history)-1] += gist(first)
	if s.see == nil {
		return nil
	}
	return s.see(first)
}

// blur takes out of an answer what a store may forget when it likes, the id and
// pool of a source that was deleted, of settled tasks why, and how many settled records are left; and of
// what it gives, when a sweep that has nothing to do soon looks next.
func (m *model) blur(answer any) any {
	if got, ok := answer.(totals); ok {
		for i := range got.Statuses {
			got.Statuses[i].Counts.Dead, got.Statuses[i].Counts.Canceled = 0, 0
		}
	}
	tasks, _ := answer.([]*dispatch.Task)
	if sweep, ok := answer.(dispatch.Sweep); ok {
		tasks = sweep.Expired
		if sweep.Next.Sub(sweep.Now) > sweepAhead {
			sweep.Next = time.Time{}
			answer = sweep
		}
	}
	for _, t := range tasks {
		if t != nil && m.world.gone[t.SourceUID] {
			if t.SourceID, t.Pool = "", ""; t.State.Settled() {
				t.SourceDeleted = nil
			}
		}
	}
	return answer
}

// differences names the sources and queues that the stores know differently, for
// whoever reads a failure.
func (m *model) differences() string {
	text := ""
	for uid := range m.world.uids() {
		var known [2][]dispatch.SourceStatus
		for n := range known {
			statuses, err := m.instances[n].Store.SourceStatuses(m.ctx, []string{uid})
			if err != nil {
				return text + "\nalso " + err.Error()
			}
			known[n] = statuses
		}
		if d := diff(reflect.ValueOf(known[0]), reflect.ValueOf(known[1]), "source "+uid); d != "" {
			text += "\nalso " + d
		}
	}
	for _, name := range modelQueues() {
		var known [2]*dispatch.Queue
		for n := range known {
			queues, err := m.instances[n].Store.QueuesNamed(m.ctx, []string{name})
			if err != nil {
				queues = []*dispatch.Queue{{Name: err.Error()}}
			}
			known[n] = queues[0]
		}
		if d := diff(reflect.ValueOf(known[0]), reflect.ValueOf(known[1]), "queue "+name); d != "" {
			text += "\nalso " + d
		}
	}
	return text
}

// gist is the part of an answer that a reader of the history needs most.
func gist(answer any) string {
	switch got := answer.(type) {
	case dispatch.ClaimReply:
		text := " ->"
		for _, grants := range got.Grants {
			text += " ["
			for _, g := range grants {
				text += fmt.Sprintf(" %s/%s@%d", g.Task.Queue, g.Task.Key, g.Token.Fence%1e9)
			}
			text += " ]"
		}
		return text
	case dispatch.Sweep:
		return fmt.Sprintf(" -> %d grace=%v", len(got.Expired), got.Grace)
	case int, bool, string, []dispatch.SubmitResult, []dispatch.RenewResult, []dispatch.ApplyResult:
		return fmt.Sprintf(" -> %v", got)
	}
	return ""
}

// note keeps the last operations for a failure.
func (m *model) note(s step) {
	line := fmt.Sprintf("%7d %s %s %s", m.steps, m.world.now().Format("01-02 15:04:05.000"), s.name, s.text)
	if len(m.history) == historyLength {
		m.history = slices.Delete(m.history, 0, 1)
	}
	m.history = append(m.history, line)
}

// tally says how often each operation and outcome occurred.
func (r ModelRun) tally() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		lines = append(lines, fmt.Sprintf("%s %d", name, r.Counts[name]))
	}
	return "occurred: " + strings.Join(lines, ", ")
}

// missing names the outcomes that a run must have met and did not.
func (r ModelRun) missing() []string {
	var missing []string
	for _, name := range required() {
		if r.Counts[name] == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

// errModel is the base of what a world finds wrong.
var errModel = errors.New("the contract is broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errModel, fmt.Sprintf(format, args...))
}
