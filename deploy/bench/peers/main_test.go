package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/load"
	"github.com/waggle-crawl/waggle/deploy/bench/internal/load/loadtest"
)

// TestRun puts Waggle, and each peer that is installed, through a little work.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, progress bytes.Buffer
	args := []string{
		"-waggle", loadtest.Program(t), "-bullmq", "bullmq", "-stores", "file,memory,redis,file:1s",
		"-tasks", "300", "-rounds", "1", "-tries", "1", "-batch", "10",
	}
	if err := run(t.Context(), args, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	const rates, ratios = ` 1  +[1-9]\d*  +[1-9]\d*  +[1-9]\d*`, `  +whole life  +\d+\.\d\d  +\d+\.\d\d  +\d+\.\d\d`
	for peer, rows := range map[string][]string{
		"waggle": {
			`Waggle, file: 10,000 queues, 10 tasks a call  +synced  +16 collectors.*` + rates,
			`Waggle, memory: one queue, 10 tasks a call  +in memory  +16 collectors.*` + rates,
			`Waggle, redis: 10,000 queues, one task a call  +in memory  +64 collectors.*` + rates,
			`Waggle, file:1s: one queue, 10 tasks a call  +written  +16 collectors.*` + rates,
		},
		"nats": {
			`NATS, file, sync_interval always: 10 tasks a call  +synced  +16 workers, \d+ connections.*` + rates,
			`NATS, file: one task a call  +written  +64 workers, \d+ connections.*` + rates,
			`NATS, memory: one task a call  +in memory` + ratios,
		},
		"beanstalkd": {
			`beanstalkd, binlog, -f0: one task a call  +synced  +\d+ connections +` + rates,
			`beanstalkd, binlog: one task a call  +written  +\d+ connections +` + rates,
			`beanstalkd, no binlog: one task a call  +in memory` + ratios,
		},
		"river": {
			`River: 10 tasks a call  +synced  +\d+ workers, a fetch each \d+ms at most +` + rates,
			`River: 10 tasks a call  +synced` + ratios,
		},
		"asynq": {
			`asynq, one server: one task a call  +in memory  +1 servers, concurrency \d+ +` + rates,
			`asynq, several servers: one task a call  +in memory` + ratios,
		},
		"bullmq": {`BullMQ: 10 tasks a call  +in memory  +\d+ workers, concurrency \d+ +` + rates},
	} {
		if missing := regexp.MustCompile(peer + " is left out: .*").Find(progress.Bytes()); missing != nil {
			t.Logf("%s", missing)
			continue
		}
		for _, row := range rows {
			if !regexp.MustCompile(row).Match(out.Bytes()) {
				t.Errorf("no row is %s:\n%s", row, out.String())
			}
		}
	}
}

func TestRun_Flags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-peers", "asynq,other"}, {"-stores", "other"}, {"-stores", "redis:1s"}, {"-batch", "1"}, {"-tasks", "0"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err == nil {
			t.Errorf("%s is accepted", strings.Join(args, " "))
		}
	}
}

// TestStoreOf shows what answers promise: peers are compared with a store that promises the same.
func TestStoreOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"file": synced, "file:always": synced, "file:1s": written, "memory": inMemory, load.StoreRedis: inMemory} {
		if _, answers, err := storeOf(name); err != nil || answers != want {
			t.Errorf("an answer of %s is %q, want %q (%v)", name, answers, want, err)
		}
	}
}

func TestSystem_Tune(t *testing.T) {
	t.Parallel()
	s := &system{name: "some"}
	for text, works := range map[string][]float64{"often fast": {9, 8, 1}, "once fast": {1, 2, 99}} {
		s.settings = append(s.settings, fixed(text, works))
	}
	if err := s.tune(t.Context(), 3, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if s.best.text != "often fast" {
		t.Errorf("the best setting is %q", s.best.text)
	}
}

// fixed is a setting that fetches and reports at the given rates, one after the other.
func fixed(text string, works []float64) setting {
	return setting{text: text, measure: func(context.Context) (rate, error) {
		r := rate{1, works[0], 1}
		works = works[1:]
		return r, nil
	}}
}
