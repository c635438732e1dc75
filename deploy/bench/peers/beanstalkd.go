package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/beanstalkd/go-beanstalk"
	"golang.org/x/sync/errgroup"

	"github.com/waggle-crawl/waggle/deploy/bench/internal/process"
)

// beanstalkWait is how long a reserve waits for a job.
const beanstalkWait = 5 * time.Second

// beanstalkds is beanstalkd on a unix socket, with one tube. Its calls have one job each.
func beanstalkds(_ context.Context, o *options) ([]*system, error) {
	if err := installed("beanstalkd"); err != nil {
		return nil, err
	}
	var systems []*system
	for _, kept := range []struct {
		name, answers string
		args          []string
	}{
		{"beanstalkd, binlog, -f0", synced, []string{"-b", ".", "-f0"}},
		{"beanstalkd, binlog", written, []string{"-b", "."}}, // synced each 50 ms
		{"beanstalkd, no binlog", inMemory, nil},
	} {
		s := &system{name: kept.name + ": " + aCall(1), answers: kept.answers}
		for _, connections := range []int{16, o.alone, 4 * o.alone} {
			s.settings = append(s.settings, setting{
				text: fmt.Sprintf("%d connections", connections),
				measure: func(ctx context.Context) (rate, error) {
					return beanstalkd(ctx, o.tasks/4, connections, kept.args)
				},
			})
		}
		systems = append(systems, s)
	}
	return systems, nil
}

func beanstalkd(ctx context.Context, tasks, connections int, args []string) (r rate, err error) {
	dir, err := os.MkdirTemp("", "waggle-bench-")
	if err != nil {
		return r, fmt.Errorf("make a directory for beanstalkd: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "socket")
	cmd := exec.CommandContext(ctx, "beanstalkd", append([]string{"-l", "unix:" + socket}, args...)...)
	cmd.Dir = dir // where the binlog is
	server, err := process.Start(dir, cmd)
	if err != nil {
		return r, err
	}
	defer server.Stop()
	b := &beanstalkPeer{}
	defer b.close()
	for _, conns := range []*[]*beanstalk.Conn{&b.producers, &b.workers} {
		for range connections {
			err := server.AwaitReady(ctx, func() error {
				conn, err := beanstalk.Dial("unix", socket)
				if err == nil {
					*conns = append(*conns, conn)
				}
				return err
			})
			if err != nil {
				return r, err
			}
		}
	}
	return lives(ctx, tasks, b)
}

// beanstalkPeer is beanstalkd at work. Calls end with its process, since they have no context.
type beanstalkPeer struct {
	ledger
	producers, workers []*beanstalk.Conn
}

func (b *beanstalkPeer) close() {
	for _, conns := range [][]*beanstalk.Conn{b.producers, b.workers} {
		for _, conn := range conns {
			_ = conn.Close() // it has nothing to write
		}
	}
}

// share calls one for each of n tasks, by all connections at once.
func share(ctx context.Context, conns []*beanstalk.Conn, n int, one func(*beanstalk.Conn, int) error) error {
	var next atomic.Int64
	all, ctx := errgroup.WithContext(ctx)
	for _, conn := range conns {
		all.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := one(conn, int(i)); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return all.Wait()
}

func (b *beanstalkPeer) submit(ctx context.Context, n int) error {
	first := b.add(n)
	return share(ctx, b.producers, n, func(conn *beanstalk.Conn, i int) error {
		_, err := conn.Put(payload(first+i), 0, 0, longLease)
		return err
	})
}

func (b *beanstalkPeer) work(ctx context.Context, n int) (time.Duration, error) {
	began := time.Now()
	err := share(ctx, b.workers, n, func(conn *beanstalk.Conn, _ int) error {
		id, body, err := conn.Reserve(beanstalkWait)
		if err != nil {
			return err
		}
		b.receive(body)
		if err := conn.Delete(id); err != nil {
			return err
		}
		b.report(1)
		return nil
	})
	return time.Since(began), err
}

func (b *beanstalkPeer) check(context.Context) error {
	stats, err := b.workers[0].Stats()
	if err != nil {
		return err
	}
	if ready, reserved := stats["current-jobs-ready"], stats["current-jobs-reserved"]; ready != "0" || reserved != "0" {
		return fmt.Errorf("jobs are left: %s ready, %s reserved", ready, reserved)
	}
	return b.ledger.check()
}
