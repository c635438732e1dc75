package collector_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	valid := func() collector.Config {
		return collector.Config{Targets: []string{"127.0.0.1:7070"}, ID: "paris-1"}
	}
	for name, test := range map[string]struct {
		change func(*collector.Config)
		want   string // in the error; empty: valid
	}{
		"least":             {func(*collector.Config) {}, ""},
		"several targets":   {func(c *collector.Config) { c.Targets = []string{"a:1", "b:2"} }, ""},
		"unix target":       {func(c *collector.Config) { c.Targets = []string{"unix:///run/waggle.sock"} }, ""},
		"no target":         {func(c *collector.Config) { c.Targets = nil }, "Targets"},
		"empty target":      {func(c *collector.Config) { c.Targets = []string{""} }, "Targets"},
		"scheme of several": {func(c *collector.Config) { c.Targets = []string{"dns:///a:1", "b:2"} }, `"dns:///a:1"`},
		"URL for a target":  {func(c *collector.Config) { c.Targets = []string{"http://x"} }, `Targets: "http://x": scheme "http" is unknown`},
		"no id":             {func(c *collector.Config) { c.ID = "" }, "ID"},
		"capitals in id":    {func(c *collector.Config) { c.ID = "Paris" }, `"Paris"`},
		"slash in id":       {func(c *collector.Config) { c.ID = "a/b" }, `"a/b"`},
		"long id":           {func(c *collector.Config) { c.ID = strings.Repeat("a", 129) }, "128"},
		"pools":             {func(c *collector.Config) { c.Pools = make([]string, 17) }, "Pools: 17 given, at most 16"},
		"sources":           {func(c *collector.Config) { c.Sources = make([]string, 17) }, "Sources"},
		"queues":            {func(c *collector.Config) { c.Queues = make([]string, 17) }, "Queues"},
		"pool":              {func(c *collector.Config) { c.Pools = []string{"default", "EU"} }, `Pools: "EU": want 1 to 128 of [a-z0-9._-]`},
		"no pool":           {func(c *collector.Config) { c.Pools = []string{""} }, `Pools: ""`},
		"source":            {func(c *collector.Config) { c.Sources = []string{"a b"} }, `Sources: "a b"`},
		"queue":             {func(c *collector.Config) { c.Queues = []string{"http://a.example"} }, `Queues: "http://a.example": want 1 to 261`},
		"queue of a port":   {func(c *collector.Config) { c.Queues = []string{"[::1]:8080", "a_b.example:81"} }, ""},
		"labels":            {func(c *collector.Config) { c.Labels = map[string]string{"region": "Paris, 3ème"} }, ""},
		"many labels":       {func(c *collector.Config) { c.Labels = manyLabels(65) }, "Labels: 65 given, at most 64"},
		"label key":         {func(c *collector.Config) { c.Labels = map[string]string{strings.Repeat("k", 129): "v"} }, "has 129 bytes: want at most 128"},
		"label without key": {func(c *collector.Config) { c.Labels = map[string]string{"": "v"} }, `Labels: the value "v" has no key`},
		"label value":       {func(c *collector.Config) { c.Labels = map[string]string{"k": strings.Repeat("v", 129)} }, `Labels: the value of "k"`},
		"label no UTF-8":    {func(c *collector.Config) { c.Labels = map[string]string{"k": "\xff"} }, "UTF-8"},
		"version":           {func(c *collector.Config) { c.Version = strings.Repeat("1", 129) }, "Version: "},
		"hostname":          {func(c *collector.Config) { c.Hostname = "a\x00b" }, "Hostname: "},
		"no slots":          {func(c *collector.Config) { c.Slots = -1 }, "Slots: -1: want 1 to 1000"},
		"many slots":        {func(c *collector.Config) { c.Slots = 1001 }, "Slots"},
		"wait":              {func(c *collector.Config) { c.Wait = 31 * time.Second }, "Wait: 31s: want at most 30s"},
		"short lease":       {func(c *collector.Config) { c.LeaseDuration = time.Millisecond }, "LeaseDuration: 1ms: want 1s to 1h0m0s"},
		"long lease":        {func(c *collector.Config) { c.LeaseDuration = 2 * time.Hour }, "LeaseDuration"},
		"report timeout":    {func(c *collector.Config) { c.ReportTimeout = -1 }, "ReportTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			test.change(&cfg)
			_, err := collector.New(cfg)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("New: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("New: %v, want it to say %q", err, test.want)
			}
		})
	}
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[strconv.Itoa(i)] = ""
	}
	return labels
}

func TestCollector_Stats(t *testing.T) {
	t.Parallel()
	c, err := collector.New(collector.Config{Targets: []string{"127.0.0.1:1"}, ID: "a", Slots: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Stats(); got != (collector.Stats{Slots: 3}) {
		t.Errorf("stats before Run: %+v", got)
	}
	if c.Health() == nil {
		t.Error("healthy before Run")
	}
	if c.Session() == "" {
		t.Error("no session")
	}
	if c.Run(t.Context(), nil) == nil {
		t.Error("Run took no handler")
	}
}

func TestTask_byHand(t *testing.T) {
	t.Parallel()
	task := &collector.Task{ID: "1-a"}
	if err := task.SetCursor([]byte("x")); err != nil {
		t.Error(err)
	}
	task.SetProgress(0.5)
	if !task.Deadline().IsZero() {
		t.Error("a task without a lease has a deadline")
	}
}

// serve starts a dispatcher on a port of its own.
func serve(t *testing.T, d *dispatcher) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	wagglev1.RegisterDispatchServiceServer(server, d)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		close(d.quit)
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// TestCollector_Targets holds that all dispatchers of a list are used, over real connections, and that the collector
// goes on with the others when one is gone.
func TestCollector_Targets(t *testing.T) {
	t.Parallel()
	first, second := newDispatcher(), newDispatcher()
	first.plain, second.plain = true, true // calls go to both in turn
	a, stopFirst := serve(t, first)
	b, _ := serve(t, second)
	done := make(chan string, 100)
	c, err := collector.New(collector.Config{Targets: []string{a, b}, ID: "c-1", Slots: 4, Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, collector.HandlerFunc(func(_ context.Context, task *collector.Task) (collector.Succeeded, error) {
			done <- task.ID
			return collector.Succeeded{}, nil
		}))
	}()
	first.put("1-a")
	second.put("1-b")
	got := map[string]bool{<-done: true, <-done: true}
	if !got["1-a"] || !got["1-b"] {
		t.Errorf("got %v, want a task of each dispatcher", got)
	}
	stopFirst()
	second.put("1-c", "1-d")
	got = map[string]bool{<-done: true, <-done: true}
	if !got["1-c"] || !got["1-d"] {
		t.Errorf("got %v, want the tasks of the dispatcher that is left", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if stats := c.Stats(); stats.Succeeded != 4 {
		t.Errorf("stats %+v", stats)
	}
}
