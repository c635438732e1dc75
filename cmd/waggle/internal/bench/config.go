package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The parts of a bench, in the order in which they run.
const (
	PartThroughput = "throughput"
	PartFloor      = "floor"
	PartLatency    = "latency"
	PartWake       = "wake"
	PartFlat       = "flat"
	PartRequeue    = "requeue"
	PartRenew      = "renew"
	PartIdle       = "idle"
)

// Parts lists the parts of a bench, in the order in which they run.
func Parts() []string {
	return []string{PartThroughput, PartFloor, PartLatency, PartWake, PartFlat, PartRequeue, PartRenew, PartIdle}
}

// Stores that a bench can measure.
const (
	// StoreRedis is one redis-server.
	StoreRedis = "redis"
	// StoreCluster is a Redis Cluster of three nodes, with as many shards as
	// Waggle gives a Cluster.
	StoreCluster = "cluster"
	// StoreMemory is the dispatcher's own memory.
	StoreMemory = "memory"
)

// Stores lists the stores that a bench can measure, in the order in which it does.
func Stores() []string { return []string{StoreRedis, StoreCluster, StoreMemory} }

// Config says what to measure. Lists are measured in their order; empty ones
// take the default.
type Config struct {
	// Program is this program, with the arguments that come before those of
	// its `serve` and before LoadArgs. Required.
	Program string
	// LoadArgs make Program run [Load]. Required.
	LoadArgs []string
	// Server is a running dispatcher to measure instead of starting one,
	// host:port. Then no part can say what Redis and the dispatcher spend, and
	// of the floor only empty calls are measured.
	Server string
	// Only names the parts to measure; empty: all.
	Only []string
	// Quick makes everything small: a smoke test, whose figures mean little.
	Quick bool
	// Stores, of StoreRedis, StoreCluster and StoreMemory. Default all.
	Stores []string
	// Workloads, of A (one queue), B (1,000 queues) and C (10,000 queues, 100
	// ms apart). Default all.
	Workloads []string
	// Batches are tasks a call, 1 to 1000. Default 1, 10, 100, 1000.
	Batches []int
	// Collectors are collectors at once, 1 to 256. Default 1, 16, 64, 256.
	Collectors []int
	// Backlogs are numbers of queued tasks for PartFlat, at most 10,000,000.
	// Default 1,000, 100,000 and 1,000,000.
	Backlogs []int
	// Queues are numbers of queues for PartFlat, at most 1,000,000. Default
	// 10, 10,000 and 100,000.
	Queues []int
	// Duration is how long one measurement is to take, about. Default 2 s.
	Duration time.Duration
	// Tasks of each measurement of PartThroughput, at most 200,000; 0: as many as go
	// through in Duration.
	Tasks int
	// Rate is how many tasks a second whole lives of PartThroughput are submitted at, at
	// most 1,000,000; 0: as fast as it goes, beside as many that wait. At a rate that all
	// can follow, queues are empty but for what has just come: the least there is to find
	// in a call, so what a task costs at most.
	Rate int
	// Repeats of each measurement, after one warm-up. Default 3.
	Repeats int
	// Dispatchers to start. Default 1.
	Dispatchers int
	// Processors that each dispatcher may use at once (GOMAXPROCS), at most 256; 0: as
	// many as there are. Beside a Redis that needs a processor for itself, fewer can be
	// faster.
	Processors int
	// Parked is how many collectors wait in PartWake and PartIdle. Default
	// 1,000.
	Parked int
	// Leases to hold in PartRequeue and PartRenew. Default 100,000.
	Leases int
	// Timeout ends the bench. Default 60 min.
	Timeout time.Duration
}

// Validate fills in defaults; the error names the field, the value and the limit.
func (c *Config) Validate() error {
	c.defaults()
	for _, check := range []struct {
		field string
		given []string
		known []string
	}{
		{"Only", c.Only, Parts()},
		{"Stores", c.Stores, Stores()},
		{"Workloads", c.Workloads, workloadNames()},
	} {
		for _, value := range check.given {
			if !slices.Contains(check.known, value) {
				return fmt.Errorf("%s: %q is unknown; there are %s", check.field, value, strings.Join(check.known, ", "))
			}
		}
	}
	for _, check := range []struct {
		field  string
		values []int
		most   int
	}{
		{"Batches", c.Batches, 1000},
		{"Collectors", c.Collectors, 256},
		{"Backlogs", c.Backlogs, 10_000_000},
		{"Queues", c.Queues, 1_000_000},
		{"Repeats", []int{c.Repeats}, 100},
		{"Dispatchers", []int{c.Dispatchers}, 16},
		{"Parked", []int{c.Parked}, 20_000},
		{"Leases", []int{c.Leases}, 100_000},
	} {
		for _, value := range check.values {
			if value < 1 || value > check.most {
				return fmt.Errorf("%s: %d is not within 1 to %d", check.field, value, check.most)
			}
		}
	}
	if c.Processors < 0 || c.Processors > 256 {
		return fmt.Errorf("%s: %d is not within 0 to 256", "Processors", c.Processors)
	}
	if c.Tasks < 0 || c.Tasks > mostTasks {
		return fmt.Errorf("%s: %d is not within 0 to %d", "Tasks", c.Tasks, mostTasks)
	}
	if c.Rate < 0 || c.Rate > mostRate {
		return fmt.Errorf("%s: %d is not within 0 to %d", "Rate", c.Rate, mostRate)
	}
	if c.Duration < 50*time.Millisecond || c.Duration > time.Minute {
		return fmt.Errorf("%s: %s is not within 50ms to 1m", "Duration", c.Duration)
	}
	return nil
}

func (c *Config) defaults() {
	full := Config{
		Only: Parts(), Stores: Stores(), Workloads: workloadNames(),
		Batches: []int{1, 10, 100, 1000}, Collectors: []int{1, 16, 64, 256},
		Backlogs: []int{1000, 100_000, 1_000_000}, Queues: []int{10, 10_000, 100_000},
		Duration: 2 * time.Second, Repeats: 3, Parked: 1000, Leases: 100_000,
	}
	if c.Quick {
		full.Workloads = []string{"A", "B"}
		full.Batches, full.Collectors = []int{1, 100}, []int{16}
		full.Backlogs, full.Queues = []int{1000, 5000}, []int{10, 1000}
		full.Duration, full.Repeats, full.Parked, full.Leases = 250*time.Millisecond, 1, 50, 1000
	}
	orList(&c.Only, full.Only)
	orList(&c.Stores, full.Stores)
	orList(&c.Workloads, full.Workloads)
	orList(&c.Batches, full.Batches)
	orList(&c.Collectors, full.Collectors)
	orList(&c.Backlogs, full.Backlogs)
	orList(&c.Queues, full.Queues)
	orValue(&c.Duration, full.Duration)
	orValue(&c.Repeats, full.Repeats)
	orValue(&c.Dispatchers, 1)
	orValue(&c.Parked, full.Parked)
	orValue(&c.Leases, full.Leases)
	orValue(&c.Timeout, time.Hour)
}

func orList[T any](field *[]T, value []T) {
	if len(*field) == 0 {
		*field = value
	}
}

func orValue[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// workload is how tasks spread over queues.
type workload struct {
	Name   string
	Queues int
	Delay  time.Duration
	// Burst is how many tasks in a row are of one queue; 0 means 1.
	Burst int
}

func workloadNames() []string { return []string{"A", "B", "C"} }

func workloadOf(name string) workload {
	switch name {
	case "B":
		return workload{Name: "B", Queues: 1000}
	case "C":
		return workload{Name: "C", Queues: 10_000, Delay: 100 * time.Millisecond}
	default:
		return workload{Name: "A", Queues: 1}
	}
}
