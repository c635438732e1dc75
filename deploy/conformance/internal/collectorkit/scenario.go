package collectorkit

import (
	"context"
	"crypto/tls"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/deploy/conformance/internal/verdict"
)

// Scenario is one rule that a collector must keep, and the script that shows whether it does.
type Scenario struct {
	// Name is unique; the part before the first slash says what it is about.
	Name string

	// Rule is what the manual asks for, with its section.
	Rule string

	// config changes what the client program is told; nil changes nothing.
	config func(*clientConfig)

	// certificates makes a dispatcher serve over TLS, under a host's name, and has the client program trust what it should;
	// nil: plain text.
	certificates func(k *kit, host string) (*tls.Config, error)

	// streams says that it is about heartbeat streams, which JSON over HTTP/1.1 does not have.
	streams bool

	// excused are rules of always.go that the script itself breaks.
	excused []string

	// script has the dispatcher act, and judges what it sees.
	script func(*kit)
}

// Scenarios is the table of all scenarios.
func Scenarios() []Scenario {
	return slices.Concat(fetchScenarios(), refusedScenarios(), leaseScenarios(), beatScenarios(), workScenarios(), reportScenarios(), stopScenarios(), serverScenarios())
}

// Result is how a client program did in one scenario.
type Result struct {
	Scenario Scenario
	Verdict  string // what was wrong, in one line; empty: nothing
	Took     time.Duration
	Log      string // the last that the client program wrote to stderr
}

// Options of Run.
type Options struct {
	Command   []string       // the client program with its arguments
	Transport string         // "grpc" or "connect-json", as the client program is told
	Match     *regexp.Regexp // which scenarios; nil: all
	Parallel  int            // how many at once, at least 1
	Done      func(Result)   // is called for each scenario as it ends, one at a time; may be nil
}

// Run runs scenarios against a client program and returns their results in the order of the table.
func Run(ctx context.Context, o Options) []Result {
	var chosen []Scenario
	for _, s := range Scenarios() {
		skipped := s.streams && o.Transport == "connect-json"
		if !skipped && (o.Match == nil || o.Match.MatchString(s.Name)) {
			chosen = append(chosen, s)
		}
	}
	results := make([]Result, len(chosen))
	var running sync.WaitGroup
	var done sync.Mutex
	free := make(chan struct{}, max(o.Parallel, 1))
	for i, s := range chosen {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			results[i] = s.run(ctx, o)
			done.Lock()
			defer done.Unlock()
			if o.Done != nil {
				o.Done(results[i])
			}
		})
	}
	running.Wait()
	return results
}

func (s Scenario) run(ctx context.Context, o Options) Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	k, err := newKit(ctx, s, o)
	defer k.close()
	if err != nil {
		return Result{Scenario: s, Verdict: fmt.Sprintf("the kit could not start: %v", err)}
	}
	found := verdict.Of(func() {
		s.script(k)
		k.awaitEvents()
		k.checkAlways(s.excused)
	})
	return Result{Scenario: s, Verdict: found, Took: time.Since(began), Log: k.log.String()}
}
