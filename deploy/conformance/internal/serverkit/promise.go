// Package serverkit asks any implementation of the API for the promises of the protocol manual, as an outside client can:
// each [Promise] makes calls and judges the answers. It works on sources, pools and queues of its own, and removes them, so
// that it may run beside other work. Where the dispatcher wants to know who calls, it needs the role admin.
package serverkit

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/waggle-crawl/waggle/collector"
	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Promise is one thing that a dispatcher promises its callers.
type Promise struct {
	// Name is unique; the part before the slash says what it is about.
	Name string

	// Rule is what the manual promises, with its section.
	Rule string

	ask func(*probe)
}

// Promises is the table of all promises.
func Promises() []Promise {
	return slices.Concat(grantPromises(), leasePromises(), beatPromises(), workPromises(), reportPromises(), gatePromises(), requestPromises())
}

// Result is how a dispatcher did with one promise.
type Result struct {
	Promise Promise
	Verdict string // what was wrong, in one line; empty: nothing
	Took    time.Duration
}

// Options of Run.
type Options struct {
	Addresses []string       // of dispatchers on one store, host:port; at least one
	TokenFile string         // holds the token of each call; empty: none
	CAFile    string         // of the authority that signed the dispatchers' certificates; empty: plain text
	Match     *regexp.Regexp // which promises; nil: all
	Parallel  int            // how many at once, at least 1
	Done      func(Result)   // is called for each promise as it ends, one at a time; may be nil
}

// Run asks for promises and returns the results in the order of the table.
func Run(ctx context.Context, o Options) ([]Result, error) {
	services, closeAll, err := connect(o)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	for i, s := range services {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := s.admin.GetStats(ctx, &wagglev1.GetStatsRequest{}, grpc.WaitForReady(true))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("dispatcher %s: %w", o.Addresses[i], err)
		}
	}
	var chosen []Promise
	for _, p := range Promises() {
		if o.Match == nil || o.Match.MatchString(p.Name) {
			chosen = append(chosen, p)
		}
	}
	run := strings.ToLower(rand.Text()[:8])
	results := make([]Result, len(chosen))
	var asking sync.WaitGroup
	var done sync.Mutex
	free := make(chan struct{}, max(o.Parallel, 1))
	for i, one := range chosen {
		free <- struct{}{}
		asking.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			p := &probe{ctx: ctx, services: services[0], other: services[len(services)-1], name: fmt.Sprintf("kit-%s-%d", run, i)}
			found := verdict.Of(func() { one.ask(p) })
			p.cleanUp() //nolint:contextcheck // what was made is removed although the time is over
			results[i] = Result{Promise: one, Verdict: found, Took: time.Since(began)}
			done.Lock()
			defer done.Unlock()
			if o.Done != nil {
				o.Done(results[i])
			}
		})
	}
	asking.Wait()
	return results, nil
}

// services are the clients of one dispatcher.
type services struct {
	dial     func(...grpc.DialOption) (*grpc.ClientConn, error)
	conn     *grpc.ClientConn
	dispatch wagglev1.DispatchServiceClient
	tasks    wagglev1.TaskServiceClient
	sources  wagglev1.SourceServiceClient
	queues   wagglev1.QueueServiceClient
	holds    wagglev1.HoldServiceClient
	admin    wagglev1.AdminServiceClient
}

// connect makes a connection to each address.
func connect(o Options) (list []services, closeAll func(), err error) {
	closeAll = func() {
		for _, s := range list {
			_ = s.conn.Close() // nothing is under way
		}
	}
	for _, address := range o.Addresses {
		config := collector.Config{Targets: []string{address}, ID: "kit", TokenFile: o.TokenFile, Logger: zap.NewNop()}
		if o.CAFile != "" {
			config.TLS = &collector.TLS{CAFile: o.CAFile}
		}
		conn, err := config.Dial()
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		list = append(list, services{
			dial: config.Dial, conn: conn, dispatch: wagglev1.NewDispatchServiceClient(conn), tasks: wagglev1.NewTaskServiceClient(conn),
			sources: wagglev1.NewSourceServiceClient(conn), queues: wagglev1.NewQueueServiceClient(conn),
			holds: wagglev1.NewHoldServiceClient(conn), admin: wagglev1.NewAdminServiceClient(conn),
		})
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("no address of a dispatcher: %w", os.ErrInvalid)
	}
	return list, closeAll, nil
}
