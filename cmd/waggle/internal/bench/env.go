package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// env is what one store is measured in: a Redis of its own when the store needs
// one, dispatchers, a load generator.
type env struct {
	cfg         *Config
	store       string
	redis       *privateRedis // nil without one
	dispatchers []*dispatcher
	load        *generator
	series      int
	// variables are put into the environment of dispatchers that are started.
	variables []string
}

// newEnv starts what measuring the store takes. close ends it.
func newEnv(ctx context.Context, cfg *Config, store string) (*env, error) {
	e := &env{cfg: cfg, store: store}
	if err := e.start(ctx); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *env) start(ctx context.Context) (err error) {
	if e.load, err = startGenerator(ctx, e.cfg.Program, e.cfg.LoadArgs); err != nil {
		return err
	}
	if e.cfg.Server != "" {
		return nil
	}
	switch e.store {
	case StoreRedis:
		e.redis, err = startRedis(ctx)
	case StoreCluster:
		e.redis, err = startCluster(ctx)
	}
	if err != nil {
		return err
	}
	return e.startDispatchers(ctx)
}

func (e *env) startDispatchers(ctx context.Context) error {
	url, count := "memory", 1
	if e.redis != nil {
		url, count = e.redis.url, e.cfg.Dispatchers
	}
	for range count {
		d, err := startDispatcher(ctx, e.cfg.Program, url, e.cfg.Processors, e.variables)
		if err != nil {
			return err
		}
		e.dispatchers = append(e.dispatchers, d)
	}
	return nil
}

// fresh forgets all tasks: what one row left does not weigh on the next.
func (e *env) fresh(ctx context.Context) error {
	if e.cfg.Server != "" {
		return nil
	}
	e.stopDispatchers()
	err := e.redis.each(func(c *redis.Client) error {
		if err := c.FlushAll(ctx).Err(); err != nil {
			return fmt.Errorf("empty Redis: %w", err)
		}
		if err := c.ConfigResetStat(ctx).Err(); err != nil {
			return fmt.Errorf("reset the statistics of Redis: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.startDispatchers(ctx)
}

func (e *env) stopDispatchers() {
	for _, d := range e.dispatchers {
		d.kill()
	}
	e.dispatchers = nil
}

// close ends everything that was started.
func (e *env) close() {
	if e.load != nil {
		e.load.kill()
	}
	e.stopDispatchers()
	e.redis.close()
}

func (e *env) servers() []string {
	if e.cfg.Server != "" {
		return []string{e.cfg.Server}
	}
	var addresses []string
	for _, d := range e.dispatchers {
		addresses = append(addresses, d.grpc)
	}
	return addresses
}

// newSeries begins a series: a source, a pool and queues of its own.
func (e *env) newSeries(w workload) (*job, error) {
	e.series++
	j := &job{Op: opCreate, Servers: e.servers(), Series: fmt.Sprintf("r%d-%d", os.Getpid(), e.series), Workload: w, Limit: time.Minute, Collectors: 1, Batch: 1000}
	_, err := e.load.do(j)
	return j, err
}

// cleanUpLimit bounds how long an interrupted bench cleans up.
const cleanUpLimit = 10 * time.Second

// endSeries deletes what a series left in a dispatcher that goes on, also when the
// bench was interrupted: the load generator ends with ctx, so another one does it.
func (e *env) endSeries(ctx context.Context, j *job) error {
	if e.cfg.Server == "" {
		return nil
	}
	last := *j
	last.Op = opDelete
	if ctx.Err() == nil {
		if _, err := e.load.do(&last); err == nil {
			return nil // else the signal may have come to the load generator first
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	another, err := startGenerator(ctx, e.cfg.Program, e.cfg.LoadArgs)
	if err != nil {
		return err
	}
	defer another.kill()
	_, err = another.do(&last)
	return err
}

// do has the load generator do the job's op.
func (e *env) do(j *job, op string) (*outcome, error) {
	j.Op = op
	return e.load.do(j)
}

// fill submits the tasks of the job as fast as it goes.
func (e *env) fill(j *job) error {
	all := *j
	all.Collectors, all.Batch, all.Limit = 4, 1000, 30*time.Minute
	_, err := e.do(&all, opSubmit)
	return err
}

// read reads all meters.
func (e *env) read(ctx context.Context) (*reading, error) {
	r := &reading{at: time.Now()}
	if err := e.redis.each(func(c *redis.Client) error { return readRedis(ctx, c, r) }); err != nil {
		return nil, err
	}
	r.redisWaited = e.redis.waited()
	for _, d := range e.dispatchers {
		cpu, resident := processCPU(d.pid())
		r.dispatcherCPU += cpu
		r.dispatcherRSS += resident
	}
	return r, nil
}

// claims is how many claims all dispatchers made.
func (e *env) claims(ctx context.Context) (total float64, err error) {
	for _, d := range e.dispatchers {
		n, failed := claimsOf(ctx, d.http)
		total, err = total+n, errors.Join(err, failed)
	}
	return total, err
}
