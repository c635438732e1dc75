package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// How many tasks one measurement has at most, to bound time and memory.
const (
	mostTasks      = 200_000
	mostQuickTasks = 10_000
	mostRate       = 1_000_000
)

// throughput measures every batch with the reference number of collectors, and
// every number of collectors with the reference batch.
func (b *bencher) throughput(ctx context.Context, e *env) error {
	for _, name := range b.cfg.Workloads {
		for _, pair := range pairs(b.cfg.Batches, b.cfg.Collectors) {
			row := ThroughputRow{Store: e.store, Workload: name, Batch: pair[0], Collectors: pair[1]}
			if err := b.throughputRow(ctx, e, &row); err != nil {
				return fmt.Errorf("workload %s, batch %d, %d collectors: %w", name, row.Batch, row.Collectors, err)
			}
			b.result.Throughput = append(b.result.Throughput, row)
			b.tell("throughput  %-7s %s  batch %4d  %3d collectors  submit %7.0f/s  fetch and report %7.0f/s  whole life %7.0f/s",
				row.Store, row.Workload, row.Batch, row.Collectors, row.Submit.Median, row.Work.Median, row.Life.Median)
		}
	}
	return nil
}

// pairs crosses the lists at 100 tasks a call and 16 collectors, or what is
// nearest to the middle of the list.
func pairs(batches, collectors []int) [][2]int {
	batch, collector := reference(batches, 100), reference(collectors, 16)
	var all [][2]int
	for _, n := range batches {
		all = append(all, [2]int{n, collector})
	}
	for _, n := range collectors {
		if n != collector {
			all = append(all, [2]int{batch, n})
		}
	}
	// One task a call is what most clients do: it is shown with many collectors, too.
	if many := slices.Max(collectors); slices.Contains(batches, 1) && batch != 1 && many != collector {
		all = append(all, [2]int{1, reference(collectors, 64)})
	}
	return slices.Compact(all)
}

func reference(list []int, wanted int) int {
	if slices.Contains(list, wanted) {
		return wanted
	}
	return list[len(list)/2]
}

// throughputRow warms up, then measures and repeats it.
func (b *bencher) throughputRow(ctx context.Context, e *env, row *ThroughputRow) error {
	var submits, works, carries, lives []float64
	var submitCosts, workCosts, lifeCosts []Cost
	w := workloadOf(row.Workload)
	err := b.series(ctx, e, w, func(j *job) error {
		j.Batch, j.Collectors = row.Batch, row.Collectors
		if err := b.warmUp(e, j, w); err != nil {
			return err
		}
		row.Tasks = j.Tasks
		for range b.cfg.Repeats {
			submit, err := measured(ctx, e, j, opSubmit, &submitCosts)
			if err != nil {
				return err
			}
			work, err := measured(ctx, e, j, opDrain, &workCosts)
			if err != nil {
				return err
			}
			j.First += j.Tasks
			calls, err := carried(e, j)
			if err != nil {
				return err
			}
			life, err := b.wholeLife(ctx, e, j, &lifeCosts)
			if err != nil {
				return err
			}
			submits, works = append(submits, perSecond(submit)), append(works, perSecond(work))
			carries, lives = append(carries, perSecond(calls)), append(lives, perSecond(life))
			row.Retries += submit.Retries + work.Retries + calls.Retries + life.Retries
		}
		return nil
	})
	row.Submit, row.Work, row.Carried, row.Life = sampleOf(submits), sampleOf(works), sampleOf(carries), sampleOf(lives)
	row.SubmitCost, row.WorkCost, row.LifeCost = medianCost(submitCosts), medianCost(workCosts), medianCost(lifeCosts)
	return err
}

// warmUp makes the queues, and then learns at what rate tasks go through, by which
// it sizes what is measured, unless the config does.
func (b *bencher) warmUp(e *env, j *job, w workload) error {
	j.Tasks = min(b.most(), max(500, 4*j.Batch, min(w.Queues, 1000)))
	for _, part := range [...]float64{0.5, 1} { // of the duration
		warm, err := e.do(j, opLife)
		if err != nil {
			return err
		}
		j.First += j.Tasks
		j.Tasks = min(b.most(), max(j.Tasks, int(part*perSecond(warm)*b.cfg.Duration.Seconds())))
	}
	if b.cfg.Tasks > 0 {
		j.Tasks = b.cfg.Tasks
	}
	return nil
}

// wholeLife submits, fetches and reports at once. As many tasks again are queued before and
// stay behind, so that all stores do the same work: where collectors are ahead of producers,
// queues run empty, and a call finds the less, and costs the more, the faster the store is.
// Submitted at a rate, tasks find empty queues.
func (b *bencher) wholeLife(ctx context.Context, e *env, j *job, of *[]Cost) (*outcome, error) {
	if b.cfg.Rate > 0 {
		j.Rate = b.cfg.Rate
		life, err := measured(ctx, e, j, opLife, of)
		j.Rate = 0
		j.First += j.Tasks
		return life, err
	}
	if err := e.fill(j); err != nil {
		return nil, err
	}
	j.First += j.Tasks
	life, err := measured(ctx, e, j, opLife, of)
	if err != nil {
		return nil, err
	}
	j.First += j.Tasks
	_, err = e.do(j, opDrain)
	return life, err
}

// carried submits, then fetches, each fetch with the reports of the one before.
func carried(e *env, j *job) (*outcome, error) {
	if err := e.fill(j); err != nil {
		return nil, err
	}
	j.Carry = true
	work, err := e.do(j, opDrain)
	j.Carry = false
	j.First += j.Tasks
	return work, err
}

// measured does a job, and reads what each of its tasks took.
func measured(ctx context.Context, e *env, j *job, op string, of *[]Cost) (*outcome, error) {
	before, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	o, err := e.do(j, op)
	if err != nil {
		return nil, err
	}
	after, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	*of = append(*of, costs(before, after, j.Tasks))
	return o, nil
}

func (b *bencher) most() int {
	if b.cfg.Quick {
		return mostQuickTasks
	}
	return mostTasks
}

func perSecond(o *outcome) float64 {
	if o.Took <= 0 {
		return 0
	}
	return float64(o.Count) / o.Took.Seconds()
}

// medianCost is the cost of the repeat that is in the middle by Redis CPU, or
// by the dispatcher's where there is no Redis.
func medianCost(all []Cost) Cost {
	if len(all) == 0 {
		return Cost{}
	}
	slices.SortFunc(all, func(a, b Cost) int {
		switch x, y := a.RedisCPU+a.DispatcherCPU/1e6, b.RedisCPU+b.DispatcherCPU/1e6; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return all[len(all)/2]
}

// floor measures the least that gRPC and Redis have to do.
func (b *bencher) floor(ctx context.Context, e *env) error {
	if err := b.emptyFloor(ctx, e); err != nil || e.store != StoreRedis {
		return err
	}
	for _, batch := range b.cfg.Batches {
		var submits, works, submitCPU, workCPU []float64
		for range b.cfg.Repeats {
			if err := e.fresh(ctx); err != nil {
				return err
			}
			j := &job{Redis: e.redis.url, Batch: batch, Tasks: min(b.most()/2, 20_000*max(1, batch/10)), Limit: time.Minute}
			var took [3]time.Duration
			var cpu [3]float64
			for phase := range took {
				j.First = phase
				before, err := e.read(ctx)
				if err != nil {
					return err
				}
				o, err := e.do(j, opFloor)
				if err != nil {
					return err
				}
				after, err := e.read(ctx)
				if err != nil {
					return err
				}
				took[phase], cpu[phase] = o.Took, (after.redisCPU-before.redisCPU)/float64(j.Tasks)
			}
			n := float64(j.Tasks)
			submits, works = append(submits, n/took[phaseSubmit].Seconds()), append(works, n/(took[phaseFetch]+took[phaseReport]).Seconds())
			submitCPU, workCPU = append(submitCPU, cpu[phaseSubmit]), append(workCPU, cpu[phaseFetch]+cpu[phaseReport])
		}
		row := FloorRow{
			Batch: batch, Submit: sampleOf(submits), Work: sampleOf(works), SubmitCPU: sampleOf(submitCPU),
			WorkCPU: sampleOf(workCPU), Commands: floorFetch + floorReport,
		}
		b.result.Floor = append(b.result.Floor, row)
		b.tell("floor       batch %4d  submit %7.0f/s  fetch and report %7.0f/s, %s of Redis CPU a task", batch, row.Submit.Median, row.Work.Median, micros(row.WorkCPU.Median))
	}
	return nil
}
