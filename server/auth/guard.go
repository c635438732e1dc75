package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"go.uber.org/zap"
)

// Refused is the error of a call that its caller may not make.
type Refused struct {
	Identity string // empty: the caller has proved none
	Method   string // the last part of its name
	// Collector is the collector id that belongs to another identity, if that refuses the call.
	Collector string
	Rule      string // what refuses the call
}

// Error says which rule refuses whom.
func (r *Refused) Error() string {
	if r.Identity == "" {
		return "not authenticated: " + r.Rule
	}
	return "not allowed: " + r.Rule
}

// Guard lets calls in by a policy. It follows the policy's file, and the keys of its issuers.
type Guard struct {
	log   *zap.Logger
	file  files
	state atomic.Pointer[state]

	mu   sync.Mutex // guards open
	open map[*Caller]*watch

	// bound has collector ids that were found to be an identity's, for bindingFor.
	bound *ttlcache.Cache[string, string]
}

// bindingFor is how long a binding is trusted that was read. If it is released meanwhile, the identity that had it may
// use it for so long.
const bindingFor = 10 * time.Second

// maxBound bounds the bindings that are kept.
const maxBound = 100_000

// state is what a guard goes by. It is replaced, never changed.
type state struct {
	policy  *Policy
	tokens  map[[sha256.Size]byte]*Token
	issuers []*issuer
	grants  sync.Map // identity -> []*Grant, as they were asked for
}

// grantsTo are the grants to an identity.
func (s *state) grantsTo(identity string) []*Grant {
	if found, ok := s.grants.Load(identity); ok {
		return found.([]*Grant)
	}
	grants := s.policy.GrantsTo(identity)
	if len(grants) > 0 { // else anybody with a JWT could fill the memory
		s.grants.Store(identity, grants)
	}
	return grants
}

// NewGuard makes a guard of the policy in a file. The error wraps [ErrInvalid] if the policy
// cannot be used.
func NewGuard(policyFile string, log *zap.Logger) (*Guard, error) {
	g := &Guard{
		log: log, open: make(map[*Caller]*watch),
		bound: ttlcache.New(ttlcache.WithTTL[string, string](bindingFor), ttlcache.WithCapacity[string, string](maxBound), ttlcache.WithDisableTouchOnHit[string, string]()),
	}
	g.file = files{paths: []string{policyFile}, what: "the policy", log: log, read: g.use}
	if err := g.file.load(); err != nil {
		return nil, err
	}
	return g, nil
}

// use makes the content of the policy's file the policy.
func (g *Guard) use(contents [][]byte) error {
	if len(bytes.TrimSpace(contents[0])) == 0 {
		return fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	policy, err := Parse(contents[0])
	if err != nil {
		return err
	}
	next := &state{policy: policy, tokens: make(map[[sha256.Size]byte]*Token)}
	for i := range policy.Tokens {
		var hash [sha256.Size]byte
		if _, err := hex.Decode(hash[:], []byte(policy.Tokens[i].SHA256)); err != nil {
			return fmt.Errorf("%w: tokens[%d].sha256: %w", ErrInvalid, i, err)
		}
		next.tokens[hash] = &policy.Tokens[i]
	}
	for i := range policy.JWT {
		var old *issuer
		if last := g.state.Load(); last != nil {
			old = last.issuer(&policy.JWT[i])
		}
		of, err := newIssuer(&policy.JWT[i], old, g.file.paths[0], g.log)
		if err != nil {
			return err
		}
		next.issuers = append(next.issuers, of)
	}
	g.state.Store(next)
	return nil
}

// issuer finds an issuer whose keys come from the same place.
func (s *state) issuer(of *Issuer) *issuer {
	for _, i := range s.issuers {
		if i.Issuer.Issuer == of.Issuer && i.KeysURL == of.KeysURL && i.KeysFile == of.KeysFile {
			return i
		}
	}
	return nil
}

// Explain is [Policy.Explain] of the policy in use. A nil guard lets everybody in.
func (g *Guard) Explain(method, identity string) (allowed bool, text string, err error) {
	var policy *Policy
	if g != nil {
		policy = g.state.Load().policy
	}
	return policy.Explain(method, identity)
}

// Run follows the files until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	look := func(now time.Time) {
		before := g.state.Load()
		g.file.look(now)
		after := g.state.Load()
		changed := before != after
		for _, i := range after.issuers {
			changed = i.look(ctx, now) || changed
		}
		if changed {
			g.checkOpen()
		}
	}
	look(time.Now()) // the keys of issuers
	follow(ctx, look)
}

// checkOpen ends the calls in flight that are not allowed any more.
func (g *Guard) checkOpen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c, w := range g.open {
		w.check(c)
	}
}
