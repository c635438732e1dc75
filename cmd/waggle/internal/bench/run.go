package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// errInterrupted is how people hear that they ended a bench.
var errInterrupted = errors.New("interrupted; the result has what was measured until then")

// Run measures what cfg says, and tells progress, a line a row, to progress.
// The result holds what was measured before an error, such as the end of ctx.
// Nothing is left behind: no process, no directory; with cfg.Server its sources
// and queue rules are deleted.
func Run(ctx context.Context, cfg Config, progress io.Writer) (*Result, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	caller := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("the bench took longer than %s", cfg.Timeout))
	defer cancel()
	b := &bencher{cfg: &cfg, progress: progress, result: &Result{Machine: machineOf(&cfg)}}
	stores := cfg.Stores
	if cfg.Server != "" {
		stores = []string{"server"}
	}
	for _, store := range stores {
		if err := b.measure(ctx, store); err != nil {
			if caller.Err() != nil {
				return b.result, errInterrupted
			}
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return b.result, fmt.Errorf("%s: %w", store, err)
		}
	}
	return b.result, nil
}

func machineOf(cfg *Config) Machine {
	m := Machine{
		Time: time.Now().UTC().Format(time.RFC3339), System: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU(), Go: runtime.Version(), Server: cfg.Server, Repeats: cfg.Repeats,
		Processors: cfg.Processors, Rate: cfg.Rate,
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.LoadBefore, _, _ = strings.Cut(string(load), " ")
	}
	return m
}

// bencher is a running bench.
type bencher struct {
	cfg      *Config
	progress io.Writer
	result   *Result
}

func (b *bencher) tell(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

// measure runs the parts in one store.
func (b *bencher) measure(ctx context.Context, store string) error {
	e, err := newEnv(ctx, b.cfg, store)
	if err != nil {
		return err
	}
	defer e.close()
	if e.redis != nil && b.result.Machine.Redis == "" {
		if b.result.Machine.Redis, err = e.redis.describe(ctx); err != nil {
			return err
		}
	}
	for _, part := range Parts() {
		if !slices.Contains(b.cfg.Only, part) {
			continue
		}
		if err := b.part(ctx, e, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

func (b *bencher) part(ctx context.Context, e *env, part string) error {
	switch part {
	case PartThroughput:
		return b.throughput(ctx, e)
	case PartFloor:
		return b.floor(ctx, e)
	case PartLatency:
		return b.latency(ctx, e)
	case PartWake:
		return b.wake(ctx, e)
	case PartFlat:
		return b.flat(ctx, e)
	case PartRequeue:
		return b.requeue(ctx, e)
	case PartRenew:
		return b.renew(ctx, e)
	case PartIdle:
		return b.idle(ctx, e)
	default:
		return fmt.Errorf("there is no part %q", part)
	}
}

// series runs f in a series of its own, on a store that holds nothing else.
func (b *bencher) series(ctx context.Context, e *env, w workload, f func(j *job) error) error {
	if err := e.fresh(ctx); err != nil {
		return err
	}
	j, err := e.newSeries(w)
	if err == nil {
		err = f(j)
	} else if ctx.Err() == nil {
		return err
	}
	left := e.endSeries(ctx, j)
	if left != nil && ctx.Err() != nil {
		b.tell("what series %s made is left at the dispatcher: %v", j.Series, left)
	}
	return errors.Join(err, left)
}
