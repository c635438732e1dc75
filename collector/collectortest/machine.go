package collectortest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/waggle-crawl/waggle/collector"
)

const (
	// lookEvery is how often Work looks whether something is left to do.
	lookEvery = 10 * time.Millisecond
	// stopTimeout bounds how long a collector takes to stop when its machine has died.
	stopTimeout = time.Second
	// idleFor is how long nothing must be left before Work believes it: a task that has come due counts as due when a
	// collector that waits for one is to get it, which takes up to 100 ms.
	idleFor = 150 * time.Millisecond
)

// errDead is what a machine answers that has died.
var errDead = errors.New("collectortest: the machine is dead")

// Work runs a collector with four slots and the id "test", until no task is due or worked on; then it stops. Tasks that
// are scheduled for later, such as seeds that were crawled and failures that back off, are not waited for.
func (d *Dispatcher) Work(handler collector.Handler) {
	d.t.Helper()
	c := d.collector(d.Machine().Config("test", 4))
	ctx, stop := context.WithCancel(d.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, handler) }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for busy := time.Now(); time.Since(busy) < idleFor; {
		select {
		case <-tick.C:
			if !d.idle() {
				busy = time.Now()
			}
		case err := <-ended:
			d.t.Fatalf("the collector ended by itself: %v", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		d.t.Fatalf("the collector did not end well: %v", err)
	}
}

func (d *Dispatcher) collector(cfg collector.Config) *collector.Collector {
	d.t.Helper()
	c, err := collector.New(cfg)
	if err != nil {
		d.t.Fatalf("make a collector: %v", err)
	}
	return c
}

// Machine is where collectors run, connected to the dispatcher until it dies.
type Machine struct {
	dispatcher *Dispatcher

	mu    sync.Mutex // guards all below
	dead  bool
	conns []net.Conn
}

// Machine makes a new one.
func (d *Dispatcher) Machine() *Machine { return &Machine{dispatcher: d} }

// Config of a collector that runs on the machine; the other fields are the caller's to set. A collector on a dead machine
// stops within two seconds.
func (m *Machine) Config(id string, slots int) collector.Config {
	return collector.Config{
		Targets: []string{target}, ID: id, Slots: slots, StopTimeout: stopTimeout, ReportTimeout: stopTimeout,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(m.dial)},
	}
}

// Start runs a collector on the machine until stop is called, which waits until its handlers have returned, or until the
// test ends.
func (m *Machine) Start(cfg collector.Config, handler collector.Handler) (stop func()) {
	m.dispatcher.t.Helper()
	c := m.dispatcher.collector(cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.dispatcher.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, handler) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !m.isDead() {
			m.dispatcher.t.Errorf("collector %s: %v", cfg.ID, err)
		}
	})
	m.dispatcher.t.Cleanup(stop)
	return stop
}

// Die cuts the machine off, as a power failure does: nothing that its collectors say from now on is heard, and their
// leases run out. What their handlers do goes on, as it does on a machine that was only taken for dead.
func (m *Machine) Die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, conn := range m.conns {
		_ = conn.Close() // the other end notices, which is what is wanted
	}
}

func (m *Machine) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *Machine) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := m.dispatcher.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errors.Join(errDead, conn.Close())
	}
	m.conns = append(m.conns, conn)
	return conn, nil
}
