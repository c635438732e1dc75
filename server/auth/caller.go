package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// Caller is who makes a call. A nil Caller is anybody: there is no guard, or anyone may make the call.
type Caller struct {
	// Identity is what the caller has proved.
	Identity string

	guard   *Guard // nil only if vouched
	vouched bool   // another dispatcher has let the call in, and does not let it go on when it is not allowed any more
	method  string
	proof   proof
	expires time.Time // of the proof, when the call was admitted; zero: never
	grants  []*Grant  // those that allow the method; of the goroutine that makes the call

	use atomic.Pointer[use] // of a collector, in its last request
}

// Admit finds who makes the call of ctx, and whether the method may be called. The error is a [*Refused]. A nil guard
// lets everybody in.
func (g *Guard) Admit(ctx context.Context, method string) (c *Caller, err error) {
	if g == nil || rules[method].anyone {
		return nil, nil
	}
	c = &Caller{guard: g, method: method}
	if c.proof, err = proofOf(ctx); err != nil {
		return nil, &Refused{Method: shortName(method), Rule: err.Error()}
	}
	if err := c.decide(g.state.Load()); err != nil {
		return nil, err
	}
	return c, nil
}

// Vouched is the caller of a call that another dispatcher has let in by these grants.
func (g *Guard) Vouched(method, identity string, grants []*Grant) *Caller {
	return &Caller{Identity: identity, guard: g, vouched: true, method: method, grants: grants}
}

// Grants are those that allow the method.
func (c *Caller) Grants() []*Grant {
	if c == nil {
		return nil
	}
	return c.grants
}

// decide finds whose the proof is, and the grants that allow the method.
func (c *Caller) decide(s *state) error {
	identity, expires, err := c.proof.identify(s)
	if err == nil && !expires.IsZero() && !time.Now().Before(expires) {
		err = fmt.Errorf("the credential of %s expired at %s", identity, expires.UTC().Format(time.RFC3339))
	}
	if err != nil {
		return &Refused{Method: shortName(c.method), Rule: err.Error()}
	}
	grants, err := may(c.method, identity, s.grantsTo(identity))
	if err != nil {
		return &Refused{Identity: identity, Method: shortName(c.method), Rule: err.Error()}
	}
	c.Identity, c.expires, c.grants = identity, expires, grants
	return nil
}

// Check decides the call again, before each message of a stream. The error is a [*Refused]: the credential has expired or was
// revoked, or its role was taken. [Caller.Within] goes by the grants of the last decision.
func (c *Caller) Check() error {
	if c == nil || c.vouched {
		return nil
	}
	now, err := c.again()
	if err == nil {
		c.grants = now.grants
	}
	return err
}

// Again is the caller of one call on a stream, as the policy has it now. The error is as that of [Caller.Check].
func (c *Caller) Again() (*Caller, error) {
	if c == nil {
		return nil, nil
	}
	return c.again()
}

// again is the caller as the policy has it now.
func (c *Caller) again() (*Caller, error) {
	now := &Caller{guard: c.guard, method: c.method, proof: c.proof}
	if err := now.decide(c.guard.state.Load()); err != nil {
		return nil, err
	}
	if now.Identity != c.Identity {
		return nil, c.refused("the credential is now that of " + now.Identity)
	}
	return now, nil
}

// watch is a call that lasts.
type watch struct {
	end    context.CancelCauseFunc
	expiry *time.Timer
}

// never is a time that a call does not last for.
const never = 100 * 365 * 24 * time.Hour

// check ends the call if it is not allowed any more, or when its credential expires.
func (w *watch) check(c *Caller) {
	now, err := c.again()
	if use := c.use.Load(); err == nil && use != nil {
		err = now.covers(use)
	}
	if err != nil {
		w.end(err)
		return
	}
	left := never
	if !now.expires.IsZero() {
		left = time.Until(now.expires)
	}
	w.expiry.Reset(left)
}

// Watch gives a context that ends with a [*Refused] as its cause as soon as the call is not allowed any more. It is for
// calls that last.
func (c *Caller) Watch(ctx context.Context) (context.Context, func()) {
	if c == nil || c.vouched {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	w := &watch{end: end, expiry: time.AfterFunc(never, func() {
		end(&Refused{Method: shortName(c.method), Rule: fmt.Sprintf("the credential of %s has expired", c.Identity)})
	})}
	c.guard.mu.Lock()
	c.guard.open[c] = w
	w.check(c) // the policy may have changed since the call was let in
	c.guard.mu.Unlock()
	return ctx, func() {
		c.guard.mu.Lock()
		delete(c.guard.open, c)
		c.guard.mu.Unlock()
		w.expiry.Stop()
		end(nil)
	}
}

// Backend is what a guard asks about a request.
type Backend interface {
	// SourcesOf finds the sources of tasks; tasks that do not exist have none.
	SourcesOf(ctx context.Context, tasks []string) ([]string, error)
	// BindCollector gives a collector id to an identity if it is nobody's. The error wraps [dispatch.ErrCollectorBound] if it
	// belongs to another.
	BindCollector(ctx context.Context, collector, identity string) error
}

// Within reports by a [*Refused] that a request is outside of all grants that allow its method, or of a collector id that
// belongs to another identity.
func (c *Caller) Within(ctx context.Context, req any, backend Backend) error {
	if c == nil {
		return nil
	}
	s := rules[c.method].scope
	if s == ofCollector {
		use := useOf(req)
		c.use.Store(use)
		if err := c.covers(use); err != nil {
			return err
		}
		return c.bind(ctx, use.collector, backend)
	}
	sources := func(tasks []string) ([]string, error) { return backend.SourcesOf(ctx, tasks) }
	return c.anyGrant(func(g *Grant) error { return g.within(s, c.method, req, sources) })
}

// Shows reports by a [*Refused] that a task is of a source outside of all grants: sources may share tasks.
func (c *Caller) Shows(source string) error {
	if c == nil {
		return nil
	}
	return c.anyGrant(func(g *Grant) error {
		if g.isNarrow() && !g.holdsSource(source) {
			return outsidef("the task is of another source")
		}
		return nil
	})
}

// Sources are the prefixes of the ids of all sources that the caller may see; nil: it may see all.
func (c *Caller) Sources() (prefixes []string) {
	if c == nil {
		return nil
	}
	for _, g := range c.grants {
		if !g.isNarrow() {
			return nil
		}
		prefixes = append(prefixes, g.Sources...)
	}
	return prefixes
}

// Redact removes from an answer what a caller who is narrowed to some sources does not see of what stops these: collectors
// belong to no source, so of a hold on them only its kind and times are left, also in the history of a task, and those that
// take no tasks of the source are not named.
func (c *Caller) Redact(answer proto.Message) error {
	if c == nil || slices.ContainsFunc(c.grants, func(g *Grant) bool { return !g.isNarrow() }) {
		return nil
	}
	return protorange.Range(answer.ProtoReflect(), func(at protopath.Values) error {
		message, _ := at.Index(-1).Value.Interface().(protoreflect.Message)
		if message == nil {
			return nil
		}
		switch m := message.Interface().(type) {
		case *pb.Gate:
			redactGate(m)
		case *pb.ExplainedGate:
			if m.GetGate().GetKind() == pb.GateKind_GATE_KIND_COLLECTOR_HELD {
				m.OpenedBy = "the end of the hold, or another collector that fetches them from the pool"
			}
		case *pb.ExplainResponse:
			for i, note := range m.GetNotes() {
				if strings.HasPrefix(note, "not all ") {
					m.Notes[i], _, _ = strings.Cut(note, ": ")
				}
			}
		case *pb.Task:
			redactHistory(m.GetHistory())
		}
		return nil
	})
}

// redactGate leaves of a hold on collectors its kind and times, and of a lack of collectors that there are none.
func redactGate(gate *pb.Gate) {
	kind := gate.GetKind()
	if kind == pb.GateKind_GATE_KIND_COLLECTOR_HELD {
		gate.Hold, gate.By, gate.Reason = nil, "", ""
	}
	if kind == pb.GateKind_GATE_KIND_NO_COLLECTOR {
		gate.Reason, _, _ = strings.Cut(gate.GetReason(), ": ")
	}
}

// redactHistory removes who set a hold that ended a lease, and why: it may have been one on collectors.
func redactHistory(history []*pb.Attempt) {
	var notes []string
	for _, attempt := range history {
		if attempt.GetResult() == pb.AttemptResult_ATTEMPT_RESULT_HELD {
			notes = append(notes, attempt.GetMessage())
		}
	}
	for _, attempt := range history {
		if slices.Contains(notes, attempt.GetMessage()) {
			attempt.Message = ""
		}
	}
}

// Covers reports by a [*Refused] that the request of a collector is outside of all grants. The store keeps nothing of it.
func (c *Caller) Covers(req any) error {
	if c == nil || rules[c.method].scope != ofCollector {
		return nil
	}
	use := useOf(req)
	c.use.Store(use)
	return c.covers(use)
}

// covers reports by a [*Refused] that the use of a collector id is outside of all grants.
func (c *Caller) covers(use *use) error {
	return c.anyGrant(func(g *Grant) error { return g.holdsCollector(use) })
}

// anyGrant reports by a [*Refused] that a request is outside of all grants.
func (c *Caller) anyGrant(within func(*Grant) error) error {
	var refused error
	for _, g := range c.grants {
		if refused = within(g); refused == nil {
			return nil
		}
		if _, ok := errors.AsType[*outside](refused); !ok {
			return refused
		}
	}
	return c.refused(fmt.Sprintf("%s: %v", c.Identity, refused))
}

// bind checks that the collector id of a request is that of the identity. Leases of another id are lost to it.
func (c *Caller) bind(ctx context.Context, id string, backend Backend) error {
	if !isCollectorID(id) {
		return nil // no collector has it, and the call is refused for that
	}
	if c.guard != nil {
		if known := c.guard.bound.Get(id); known != nil && known.Value() == c.Identity {
			return nil
		}
	}
	err := backend.BindCollector(ctx, id, c.Identity)
	if errors.Is(err, dispatch.ErrCollectorBound) {
		refused := c.refused(fmt.Sprintf("collector_id %.80q belongs to another identity than %s; `waggle auth release` frees it", id, c.Identity))
		refused.Collector = id
		return refused
	}
	if err != nil {
		return err
	}
	if c.guard != nil {
		c.guard.bound.Set(id, c.Identity, ttlcache.DefaultTTL)
	}
	return nil
}

func (c *Caller) refused(rule string) *Refused {
	return &Refused{Identity: c.Identity, Method: shortName(c.method), Rule: rule}
}

// proof is a credential, which can be checked again.
type proof interface {
	// identify finds whose it is, and when it expires; zero: never.
	identify(s *state) (identity string, expires time.Time, err error)
}

// proofOf finds the credential of a call: a bearer token, or else what its connection has.
func proofOf(ctx context.Context) (proof, error) {
	switch sent := metadata.ValueFromIncomingContext(ctx, "authorization"); len(sent) {
	case 0:
	case 1:
		return bearerOf(sent[0])
	default:
		return nil, fmt.Errorf("the call has %d values of \"authorization\"; it may have one", len(sent))
	}
	if p, ok := peer.FromContext(ctx); ok {
		if found, ok := p.AuthInfo.(proof); ok {
			return found, nil
		}
	}
	return nil, errors.New("the call has no credential: send a token as \"authorization: Bearer TOKEN\", or connect with a client certificate")
}

// maxToken bounds a token, in bytes. Tokens of 43 letters are ours; JWTs are longer.
const maxToken = 16 << 10

// bearer is a token, of ours or of an issuer.
type bearer struct {
	hash  [sha256.Size]byte
	token string // of an issuer's tokens only
}

// bearerOf reads the header of a call (RFC 6750).
func bearerOf(header string) (*bearer, error) {
	scheme, token, found := strings.Cut(header, " ")
	switch {
	case !found || !strings.EqualFold(scheme, "bearer") || token == "":
		return nil, errors.New("the value of \"authorization\" is not \"Bearer TOKEN\"")
	case len(token) > maxToken:
		return nil, fmt.Errorf("the token has %d bytes; the limit is %d", len(token), maxToken)
	}
	b := &bearer{hash: sha256.Sum256([]byte(token))}
	if strings.Count(token, ".") == 2 {
		b.token = token
	}
	return b, nil
}

// identify implements proof. The hash is looked up: how long that takes tells nothing of other tokens.
func (b *bearer) identify(s *state) (identity string, expires time.Time, err error) {
	if known := s.tokens[b.hash]; known != nil {
		return "token:" + known.Name, known.Expires, nil
	}
	if b.token == "" || len(s.issuers) == 0 {
		return "", time.Time{}, errors.New("the token is unknown, or was revoked")
	}
	return s.verify(b)
}
