package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/duration"
)

// callError is a call that failed, with what its explanation needs.
type callError struct {
	err     error
	servers []string
	timeout time.Duration
	tls     bool
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked did not work, or worked in part
	exitUsage  = 2 // what was asked makes no sense
)

// reportError writes what went wrong in cmd and what to do about it, and returns the code to exit with.
func reportError(out io.Writer, cmd *cobra.Command, err error) int {
	var usage *usageError
	var advised interface {
		words() (problem string, advice []string)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		writeProblem(out, usage.Error(), fmt.Sprintf("`%s --help` says how it is used", or(usage.path, cmd.CommandPath())))
		return exitUsage
	case errors.Is(err, errReported):
	case errors.As(err, &advised):
		problem, advice := advised.words()
		writeProblem(out, problem, advice...)
		// What the dispatcher finds wrong with the words is what the command itself would have found.
		if status.Code(unwrapStatus(err)) == codes.InvalidArgument {
			return exitUsage
		}
	default:
		writeProblem(out, err.Error())
	}
	return exitFailed
}

// writeProblem writes an error and what to do about it.
func writeProblem(out io.Writer, problem string, advice ...string) {
	for i, line := range append(strings.Split(strings.TrimSpace(problem), "\n"), advice...) {
		switch {
		case i == 0:
			fmt.Fprintf(out, "waggle: %s\n", plain(line))
		case line != "":
			fmt.Fprintf(out, "  %s\n", plain(line))
		}
	}
}

// advice is what to do about a refusal, by its reason.
var advice = map[string]string{
	"SOURCE_NOT_FOUND":     "`waggle source list` shows the sources",
	"SOURCE_EXISTS":        "`waggle source update` changes it, `waggle source get` shows it",
	"ETAG_MISMATCH":        "somebody changed it: look at it again (`waggle source get`, `waggle queue rule list`), then decide again",
	"TASK_NOT_FOUND":       "it was never submitted, or settled so long ago that it is forgotten",
	"QUEUE_RULE_NOT_FOUND": "`waggle queue rule list` shows the rules; a pattern is given exactly as it was set",
	"QUEUE_NOT_EMPTY":      "tasks stay where they are: map before there are any, or move sources by `waggle source import FILE --queue NAME`, or delete them, and then set the rule",
	"QUEUE_RULE_HOLDS":     "`waggle queue rule set PATTERN --lift` ends it",
	"QUEUE_DENIED":         "`waggle queue rule list` shows the rule that denies it",
	"STORE_UNAVAILABLE":    "the dispatcher runs, but its store (Redis) does not answer",
	"STORE_READ_ONLY":      "the store takes no writes: a replica, a failover under way, too few replicas, or a full disk",
	"STORE_FULL":           "the store's memory is used up; what is in it still gets done",
	"DRAINING":             "this dispatcher is about to stop; ask another one with --server",
}

// specFlagNames are the flags that set fields of a source's spec, by path.
var specFlagNames = map[string]string{
	"display_name": "display-name", "labels": "label", "scope": "scope", "pool": "pool", "priority": "priority",
	"canonical_rules": "canonical-rules", "seeds": "seed", "first_crawl": "first-crawl", "lease_duration": "lease",
	"max_hold": "max-hold", "remember": "remember", "revisit_after": "revisit-after", "max_outstanding": "max-outstanding", "metadata": "metadata",
	"schedule.every": "every", "schedule.cron": "cron", "schedule.adaptive": "adaptive", "schedule.jitter": "jitter",
	"schedule.time_zone": "time-zone", "schedule.revisit": "revisit",
	"retry.max_attempts": "max-attempts", "retry.max_expirations": "max-expirations", "retry.max_throttled": "max-throttled",
	"retry.min_backoff": "min-backoff", "retry.max_backoff": "max-backoff",
	"follow.max_depth": "max-depth", "follow.allow_hosts": "follow-host", "follow.include": "include", "follow.exclude": "exclude",
}

// otherFlagNames are those of parts of such fields and of queue rules, which share no name with them.
var otherFlagNames = map[string]string{
	"labels.key": "label", "schedule.adaptive.min_interval": "adaptive", "schedule.adaptive.max_interval": "adaptive",
	"queue": "queue", "min_delay": "min-delay", "max_in_flight": "max-in-flight", "delay_factor": "delay-factor",
	"max_delay": "max-delay", "max_block": "max-block",
}

// specPath is a field of a spec or rule as the API names it; what follows an index ("seeds[2].url") is a group of its own.
var specPath = regexp.MustCompile(`\b(?:spec|rule)\.([a-z_]+(?:\.[a-z_]+)*)((?:\[[^\]]*\])?(?:\.[a-z_]+)*)`)

// withFlags adds to the fields of a spec or rule the flags that set them. The fields stay: a spec may come from a file.
func withFlags(text string) string {
	return specPath.ReplaceAllStringFunc(text, func(path string) string {
		field := specPath.FindStringSubmatch(path)[1]
		if flag := cmp.Or(specFlagNames[field], otherFlagNames[field]); flag != "" {
			return path + " (--" + flag + ")"
		}
		return path
	})
}

// words are what a dispatcher refused, or why it could not be asked, and what to do about it; that may be empty.
func (e *callError) words() (problem string, todo []string) {
	st, ok := status.FromError(unwrapStatus(e.err))
	if !ok && errors.Is(e.err, context.Canceled) {
		return "interrupted", nil
	}
	if !ok {
		return e.err.Error(), nil
	}
	var info *errdetails.ErrorInfo
	var violations []string
	retry := ""
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				violations = append(violations, withFlags(v.GetDescription()))
			}
		case *errdetails.RetryInfo:
			retry = fmt.Sprintf("try again in %s", span(d.GetRetryDelay().AsDuration()))
		}
	}
	switch {
	case info != nil && len(violations) > 1:
		return "invalid request:", violations
	case info != nil:
		return withFlags(st.Message()), []string{advice[info.GetReason()], retry}
	default:
		return e.transportWords(st)
	}
}

// transportWords are those of failures that no dispatcher reported.
func (e *callError) transportWords(st *status.Status) (problem string, todo []string) {
	at := strings.Join(e.servers, ", ")
	message := st.Message()
	switch {
	case st.Code() == codes.DeadlineExceeded:
		return fmt.Sprintf("no answer from %s within %s", at, duration.Format(e.timeout)), []string{"--timeout waits longer"}
	case st.Code() == codes.Canceled:
		return "interrupted", nil
	case st.Code() == codes.Unimplemented:
		return fmt.Sprintf("%s does not know this call: %s", at, message), []string{"is it Waggle, and of this version? `waggle stats` shows its version"}
	case st.Code() != codes.Unavailable:
		return fmt.Sprintf("%s: %s", at, message), nil
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

// unwrapStatus is the error of gRPC within err, or err.
func unwrapStatus(err error) error {
	var withStatus interface{ GRPCStatus() *status.Status }
	if errors.As(err, &withStatus) {
		return withStatus.GRPCStatus().Err()
	}
	return err
}

// advisedError is an error with what to do about it.
type advisedError struct {
	err    error
	advice []string
}

func (e *advisedError) Error() string             { return e.err.Error() }
func (e *advisedError) Unwrap() error             { return e.err }
func (e *advisedError) words() (string, []string) { return e.err.Error(), e.advice }

// advise adds to err what to do about it.
func advise(err error, advice ...string) error { return &advisedError{err: err, advice: advice} }

// renamed is an error whose text has other words, such as flags for fields of a Config.
type renamed struct {
	text string
	err  error
}

func (e *renamed) Error() string { return e.text }
func (e *renamed) Unwrap() error { return e.err }

// rename replaces words in the text of err: old and new in pairs.
func rename(err error, words ...string) error {
	return &renamed{text: strings.NewReplacer(words...).Replace(err.Error()), err: err}
}

// refusalText is why the dispatcher refused something, in a line, with what to do.
func refusalText(err error) string {
	problem, todo := (&callError{err: err}).words()
	for _, line := range todo {
		if line != "" {
			problem += "; " + line
		}
	}
	return problem
}
