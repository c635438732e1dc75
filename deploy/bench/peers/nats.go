package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/process"
)

// natsWait is how long a pull waits for messages.
const natsWait = 5 * time.Second

// natsServers is a nats-server in a process of its own, with the work as one JetStream work queue. go.mod names the server
// as a tool, so that it is built when it is measured.
func natsServers(ctx context.Context, o *options) ([]*system, error) {
	path, err := exec.CommandContext(ctx, "go", "tool", "-n", "nats-server").Output()
	if err != nil {
		return nil, fmt.Errorf("go tool -n nats-server: %w", err)
	}
	var systems []*system
	for _, kept := range []struct {
		name, answers string
		storage       jetstream.StorageType
		sync          string
	}{
		{"file, sync_interval always", synced, jetstream.FileStorage, "always"},
		{"file", written, jetstream.FileStorage, "2m"}, // as by default
		{"memory", inMemory, jetstream.MemoryStorage, "2m"},
	} {
		for _, batch := range []int{o.batch, 1} {
			s := &system{name: fmt.Sprintf("NATS, %s: %s", kept.name, aCall(batch)), answers: kept.answers}
			workers, tasks := o.collectors, o.tasks
			if batch == 1 {
				workers, tasks = o.alone, o.tasks/4
			}
			for _, c := range [][2]int{{1, 0}, {2, 0}, {max(1, workers/4), 0}, {4, 1}} {
				p := &natsServer{
					program: strings.TrimSpace(string(path)), storage: kept.storage, sync: kept.sync, tasks: tasks,
					batch: batch, workers: workers, connections: c[0], processors: c[1],
				}
				s.settings = append(s.settings, setting{
					text:    fmt.Sprintf("%d workers, %d connections%s", workers, c[0], procs(c[1])),
					measure: p.measure,
				})
			}
			systems = append(systems, s)
		}
	}
	return systems, nil
}

// natsServer is NATS with one setting.
type natsServer struct {
	program                                 string
	storage                                 jetstream.StorageType
	sync                                    string
	tasks                                   int
	batch, workers, connections, processors int
}

func (s *natsServer) measure(ctx context.Context) (r rate, err error) {
	dir, err := os.MkdirTemp("", "waggle-bench-")
	if err != nil {
		return r, fmt.Errorf("make a directory for nats-server: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nports_file_dir: %q\njetstream { store_dir: %q, sync_interval: %q }\n", dir, dir, s.sync)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return r, fmt.Errorf("configure nats-server: %w", err)
	}
	cmd := exec.CommandContext(ctx, s.program, "-c", config)
	if s.processors > 0 {
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(s.processors))
	}
	server, err := process.Start(dir, cmd)
	if err != nil {
		return r, err
	}
	defer server.Stop()
	p := &natsPeer{natsServer: s}
	defer p.close()
	err = server.AwaitReady(ctx, func() error { return p.connect(dir) })
	if err != nil {
		return r, err
	}
	if err := p.create(ctx); err != nil {
		return r, err
	}
	return lives(ctx, s.tasks, p)
}

// natsPeer is a nats-server at work.
type natsPeer struct {
	ledger
	*natsServer
	conns     []*nats.Conn
	streams   []jetstream.JetStream // by connection, as the consumers
	consumers []jetstream.Consumer
}

// connect opens the connections to the server that has written its ports file into dir.
func (p *natsPeer) connect(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.ports"))
	if err != nil || len(files) != 1 {
		return errors.Join(errors.New("there is no ports file"), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return fmt.Errorf("read the ports file: %w", err)
	}
	var ports struct{ NATS []string }
	if err := json.Unmarshal(text, &ports); err != nil || len(ports.NATS) == 0 {
		return errors.Join(fmt.Errorf("the ports file has no address: %s", text), err)
	}
	for len(p.conns) < p.connections {
		conn, err := nats.Connect(ports.NATS[0], nats.NoReconnect())
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		p.conns = append(p.conns, conn)
	}
	return nil
}

func (p *natsPeer) close() {
	for _, conn := range p.conns {
		conn.Close()
	}
}

// create makes the stream and its consumer, which forgets a message when it is acknowledged.
func (p *natsPeer) create(ctx context.Context) error {
	const name = "crawl"
	for i, conn := range p.conns {
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(producers*p.batch))
		if err != nil {
			return fmt.Errorf("open JetStream: %w", err)
		}
		p.streams = append(p.streams, js)
		if i == 0 {
			stream := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Retention: jetstream.WorkQueuePolicy, Storage: p.storage}
			if _, err := js.CreateStream(ctx, stream); err != nil {
				return fmt.Errorf("create the stream: %w", err)
			}
		}
		consumer, err := js.CreateOrUpdateConsumer(ctx, name, jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: longLease, MaxAckPending: 2 * p.workers * p.batch,
		})
		if err != nil {
			return fmt.Errorf("create the consumer: %w", err)
		}
		p.consumers = append(p.consumers, consumer)
	}
	return nil
}

// submit publishes a batch at a time without waiting in between, and waits for the answers to it.
func (p *natsPeer) submit(ctx context.Context, n int) error {
	first := p.add(n)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(producersOf(p.batch))
	for from := 0; from < n; from += p.batch {
		all.Go(func() error {
			js := p.streams[from/p.batch%len(p.streams)]
			futures := make([]jetstream.PubAckFuture, min(p.batch, n-from))
			for i := range futures {
				var err error
				if futures[i], err = js.PublishAsync("crawl", payload(first+from+i)); err != nil {
					return fmt.Errorf("publish: %w", err)
				}
			}
			for _, f := range futures {
				select {
				case <-f.Ok():
				case err := <-f.Err():
					return fmt.Errorf("publish: %w", err)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func (p *natsPeer) work(ctx context.Context, n int) (time.Duration, error) {
	var left atomic.Int64 // what no worker has asked for
	left.Store(int64(n))
	all, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range p.workers {
		all.Go(func() error {
			for have := left.Load(); have > 0; have = left.Load() {
				ask := min(int64(p.batch), have)
				if !left.CompareAndSwap(have, have-ask) {
					continue
				}
				got, err := p.fetch(ctx, i%len(p.conns), int(ask))
				if err != nil {
					return err
				}
				left.Add(ask - int64(got))
			}
			return nil
		})
	}
	err := all.Wait()
	return time.Since(began), err
}

// fetch pulls messages and acknowledges them.
func (p *natsPeer) fetch(ctx context.Context, conn, n int) (got int, err error) {
	batch, err := p.consumers[conn].Fetch(n, jetstream.FetchMaxWait(natsWait))
	if err != nil {
		return 0, fmt.Errorf("fetch: %w", err)
	}
	var messages []jetstream.Msg
	for m := range batch.Messages() {
		p.receive(m.Data())
		messages = append(messages, m)
	}
	if err := batch.Error(); err != nil {
		return 0, fmt.Errorf("fetch: %w", err)
	}
	if err := p.acknowledge(ctx, p.conns[conn], messages); err != nil {
		return 0, fmt.Errorf("acknowledge: %w", err)
	}
	p.report(len(messages))
	return len(messages), nil
}

// acknowledge waits until the server has confirmed each acknowledgment, as Waggle confirms reports. It is DoubleAck, but
// those of a batch are under way at once.
func (p *natsPeer) acknowledge(ctx context.Context, conn *nats.Conn, messages []jetstream.Msg) error {
	if len(messages) == 1 {
		return messages[0].DoubleAck(ctx)
	}
	inbox := conn.NewInbox()
	answers, err := conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	for _, m := range messages {
		err = errors.Join(err, conn.PublishRequest(m.Reply(), inbox, []byte("+ACK")))
	}
	for range messages {
		if err == nil {
			_, err = answers.NextMsgWithContext(ctx)
		}
	}
	return errors.Join(err, answers.Unsubscribe())
}

func (p *natsPeer) check(ctx context.Context) error {
	consumer, err := p.consumers[0].Info(ctx)
	if err != nil {
		return fmt.Errorf("inspect the consumer: %w", err)
	}
	if consumer.NumPending > 0 || consumer.NumAckPending > 0 || consumer.NumRedelivered > 0 {
		return fmt.Errorf("messages are left: %d, not acknowledged: %d, redelivered: %d", consumer.NumPending, consumer.NumAckPending, consumer.NumRedelivered)
	}
	return p.ledger.check()
}
