package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

// DefaultSteps of a model test: enough for the outcomes that a run must meet. `make model`
// makes more.
const DefaultSteps = 20_000

// DefaultSeed makes every run of a model test the same one, so that a change is
// judged and not chance. Explore with others through WAGGLE_SEED.
const DefaultSeed = 20261122

// historyLength is how many operations a failed model test shows.
const historyLength = 30

// checkEvery so many steps everything in the store is read and compared.
const checkEvery = 400

// accessEvery so many steps a collector id or the audit log is used.
const accessEvery = 40

// ModelConfig says what a model test does.
type ModelConfig struct {
	// Reference, when set, makes a second store that gets the same operations
	// on the same clock, and must give the same answers.
	Reference Factory
	// Shards of the stores; 0 = 2.
	Shards int
	// Steps, if the environment's WAGGLE_STEPS sets no others; 0 is DefaultSteps.
	Steps int
	// Seed of the random source; 0 = the environment's WAGGLE_SEED, else
	// DefaultSeed. It is always printed.
	Seed uint64
}

// Model applies random operations to a store, and fails the test when an answer
// breaks the contract or differs from the reference's. It also fails when the
// run was too tame: when some operation or outcome never occurred. It prints
// its seed and the number of steps.
func Model(t *testing.T, store Factory, config ModelConfig) {
	t.Helper()
	config.Steps = int(environment(t, "WAGGLE_STEPS", uint64(cmp.Or(config.Steps, DefaultSteps))))
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

func newModel(ctx context.Context, instances []Instance, config ModelConfig) *model {
	m := &model{
		ctx: ctx, instances: instances, config: config,
		rand: rand.New(rand.NewPCG(config.Seed, 1)), access: rand.New(rand.NewPCG(config.Seed, 6)),
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
		if m.steps%accessEvery == 0 {
			if err := m.apply(m.genAccess()); err != nil {
				return err
			}
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

// pick chooses the next operation.
func (m *model) pick() step {
	if len(m.queued) > 0 {
		next := m.queued[0]
		m.queued = m.queued[1:]
		return next
	}
	if m.back > 0 {
		d := m.back
		m.back = 0
		return m.stepBack(d)
	}
	if m.chance(18) {
		return m.genAdvance()
	}
	all := generators()
	if m.instances[0].SetLock != nil {
		all = append(all, generator{8, (*model).genDeleteLock}, generator{6, (*model).genSetLock})
	}
	if m.instances[0].Restart != nil {
		all = append(all, generator{8, (*model).genRestart})
	}
	total := 0
	for _, g := range all {
		total += g.weight
	}
	n := m.rand.IntN(total)
	for _, g := range all {
		if n -= g.weight; n < 0 {
			return g.make(m)
		}
	}
	return m.genAdvance()
}

// generator makes random operations of one kind.
type generator struct {
	weight int
	make   func(m *model) step
}

func generators() []generator {
	return []generator{
		{220, (*model).genSubmit},
		{260, (*model).genClaim},
		{100, (*model).genRenew},
		{170, (*model).genApply},
		{70, (*model).genSucceed},
		{60, (*model).genSweep},
		{30, (*model).genPoll},
		{20, (*model).genBeats},
		{40, (*model).genGiveBack},
		{9, (*model).genNewSession},
		{15, (*model).genCancel},
		{25, (*model).genPush},
		{1, (*model).genDeleteSource},
		{20, (*model).genSourceRecord},
		{14, (*model).genRule},
		{20, (*model).genHold},
		{5, (*model).genUnblock},
		{10, (*model).genClockBack},
		{10, (*model).genReadTasks},
		{10, (*model).genReadQueue},
		{6, (*model).genList},
		{3, (*model).genStats},
		{1, (*model).genForget},
	}
}
