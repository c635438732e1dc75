package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
	"github.com/waggle-crawl/waggle/dispatch/duration"
)

// Error is a call that failed, with what its explanation needs.
type Error struct {
	Err           error
	servers       []string
	timeout       time.Duration
	tls           bool
	hasCredential bool
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the error of the call.
func (e *Error) Unwrap() error { return e.Err }

// advice is what to do about a refusal, by its reason.
var advice = map[string]string{
	"SOURCE_NOT_FOUND":     "`waggle source list` shows the sources",
	"SOURCE_EXISTS":        "`waggle source update` changes it, `waggle source get` shows it",
	"ETAG_MISMATCH":        "somebody changed it: look at it again (`waggle source get`, `waggle queue rule list`, `waggle hold list`), then decide again",
	"TASK_NOT_FOUND":       "it was never submitted, or settled so long ago that it is forgotten",
	"QUEUE_RULE_NOT_FOUND": "`waggle queue rule list` shows the rules; a pattern is given exactly as it was set",
	"QUEUE_NOT_EMPTY":      "tasks stay where they are: map before there are any, or move sources by `waggle source import FILE --queue NAME`, or delete them, and then set the rule",
	"HOLD_EXISTS":          "ask who set it; another --name sets one beside it, --replace takes its place",
	"NO_STANDBY":           "`waggle owner` shows the standby, which a second dispatcher of the store becomes once it has loaded it",
	"STORE_UNAVAILABLE":    "the dispatcher runs, but its store does not answer",
	"STORE_FULL":           "what is in the store still gets done; `waggle status` shows what to do",
	"DISPATCHER_DRAINING":  "this dispatcher is about to stop; ask another one with --server",
}

// Words are what a dispatcher refused, or why it could not be asked, and what to do about it; that may be empty.
func (e *Error) Words() (problem string, todo []string) {
	var advised interface{ Words() (string, []string) }
	st, ok := status.FromError(cli.UnwrapStatus(e.Err))
	switch {
	case !ok && errors.Is(e.Err, context.Canceled):
		return "interrupted", nil
	case !ok && errors.As(e.Err, &advised):
		return advised.Words()
	case !ok:
		return e.Err.Error(), nil
	}
	info, violations := detail[*errdetails.ErrorInfo](st), detail[*errdetails.BadRequest](st).GetFieldViolations()
	switch {
	case info == nil:
		return e.transportWords(st)
	case len(violations) > 1:
		for _, v := range violations {
			todo = append(todo, v.GetDescription())
		}
		return "invalid request:", todo
	}
	todo = []string{cmp.Or(advice[info.GetReason()], e.accessAdvice(st, info))}
	if retry := detail[*errdetails.RetryInfo](st); retry != nil {
		todo = append(todo, "try again in "+human.Span(retry.GetRetryDelay().AsDuration()))
	}
	return st.Message(), todo
}

// detail is what a status has of that kind, or nil.
func detail[D proto.Message](st *status.Status) (d D) {
	for _, one := range st.Details() {
		if is, ok := one.(D); ok {
			return is
		}
	}
	return d
}

// accessAdvice is what to do if the caller is not known, or may not make the call; empty if it is another failure.
func (e *Error) accessAdvice(st *status.Status, info *errdetails.ErrorInfo) string {
	switch {
	case st.Code() == codes.Unauthenticated && !e.hasCredential:
		return "no credential was given: give --token-file or --client-cert, or --context that has one"
	case st.Code() == codes.Unauthenticated:
		return "the credential is unknown here, expired or revoked: is it one of this dispatcher?"
	case info.GetReason() == "COLLECTOR_BOUND":
		return fmt.Sprintf("choose another id, or free this one by `waggle auth release %s`", cmp.Or(info.GetMetadata()["collector_id"], "COLLECTOR"))
	case st.Code() == codes.PermissionDenied:
		return fmt.Sprintf("for operators, `waggle auth explain %s --as %s` shows the rules",
			cmp.Or(info.GetMetadata()["method"], "METHOD"), cmp.Or(info.GetMetadata()["identity"], "IDENTITY"))
	}
	return ""
}

// transportWords are those of failures that no dispatcher reported.
func (e *Error) transportWords(st *status.Status) (problem string, todo []string) {
	at := strings.Join(e.servers, ", ")
	message := st.Message()
	switch {
	case st.Code() == codes.DeadlineExceeded:
		return fmt.Sprintf("no answer from %s within %s", at, duration.Text(e.timeout)), []string{"--timeout waits longer"}
	case st.Code() == codes.Canceled:
		return "interrupted", nil
	case st.Code() == codes.Unimplemented:
		return fmt.Sprintf("%s does not know this call: %s", at, message), []string{"is it Waggle, and of this version? `waggle stats` shows its version"}
	case st.Code() != codes.Unavailable:
		return fmt.Sprintf("%s: %s", at, message), []string{e.accessAdvice(st, nil)}
	case strings.Contains(message, "remote error: tls:") && e.tls:
		return fmt.Sprintf("%s does not accept the connection: %s", at, message), []string{"does it want a client certificate? --client-cert and --client-key name one"}
	case strings.Contains(message, "connection refused"):
		return "nobody listens at " + at, []string{"is `waggle serve` running there? --server or WAGGLE_SERVER names another dispatcher"}
	case strings.Contains(message, "no such host"), strings.Contains(message, "produced zero addresses"):
		return fmt.Sprintf("the name of %s is not known", at), []string{"--server or WAGGLE_SERVER names another dispatcher"}
	case strings.Contains(message, "authentication handshake failed") && e.tls:
		return fmt.Sprintf("no TLS with %s: %s", at, message), []string{"does it serve TLS, under this name? --tls-ca names the authority to trust"}
	case strings.Contains(message, "error reading server preface") && !e.tls:
		return at + " does not speak gRPC in plain text", []string{"if it serves TLS, add --tls; if it is the --http address, ask the --listen address"}
	default:
		return fmt.Sprintf("cannot reach %s: %s", at, message), nil
	}
}

// RefusalText is why the dispatcher refused something, in a line, with what to do.
func RefusalText(err error) string {
	problem, todo := (&Error{Err: err}).Words()
	for _, line := range todo {
		if line != "" {
			problem += "; " + line
		}
	}
	return problem
}

const (
	// RestartPatience is how long a call is repeated while the dispatcher, or its store, cannot take it.
	RestartPatience = time.Minute
	longestPause    = 5 * time.Second
)

// Patience repeats calls that may be taken later. It notes once that they wait, and once that they go on.
type Patience struct {
	For  time.Duration // 0: until the context ends
	Note func(format string, args ...any)

	mu   sync.Mutex // guards away
	away time.Time  // since when no call is taken; zero: they are
}

// Call makes a call until it is taken, refused for good, or no more time is left.
func (p *Patience) Call(ctx context.Context, call func() error) error {
	deadline := time.Now().Add(p.For)
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		err := call()
		wait, again := Repeatable(err)
		wait = max(wait, pause/2+rand.N(pause/2))
		if err != nil && (!again || p.For > 0 && time.Now().Add(wait).After(deadline)) {
			return err
		}
		p.note(err)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *Patience) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil && !p.away.IsZero():
		p.Note("calls are taken again, after %s; going on", human.Span(time.Since(p.away)))
		p.away = time.Time{}
	case err != nil && p.away.IsZero():
		p.away = time.Now()
		limit := "until one is, or an interrupt"
		if p.For > 0 {
			limit = "up to " + human.Span(p.For)
		}
		p.Note("no call is taken now (%s); waiting %s", human.Plain(status.Convert(err).Message()), limit)
	}
}

// Reason is why a dispatcher refused a call, for programs; empty if it did not say.
func Reason(err error) string {
	return detail[*errdetails.ErrorInfo](status.Convert(err)).GetReason()
}

// Repeatable reports whether a call that failed may be taken later, and how long its answer asks to wait.
func Repeatable(err error) (wait time.Duration, again bool) {
	st, _ := status.FromError(err)
	wait = detail[*errdetails.RetryInfo](st).GetRetryDelay().AsDuration()
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		return wait, true
	case codes.ResourceExhausted:
		return wait, wait > 0
	default:
		return 0, false
	}
}
