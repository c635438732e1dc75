package server_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/internal/wire"
)

// sentinels are the errors of the domain and how callers are told of them;
// OK: they never are, or only as a fault of Waggle's.
func sentinels() map[string]struct {
	err    error
	code   codes.Code
	reason string
} {
	type told = struct {
		err    error
		code   codes.Code
		reason string
	}
	return map[string]told{
		"ErrInvalid":           {dispatch.ErrInvalid, codes.InvalidArgument, "INVALID_FIELD"},
		"ErrSourceNotFound":    {dispatch.ErrSourceNotFound, codes.NotFound, "SOURCE_NOT_FOUND"},
		"ErrSourceExists":      {dispatch.ErrSourceExists, codes.AlreadyExists, "SOURCE_EXISTS"},
		"ErrEtagMismatch":      {dispatch.ErrEtagMismatch, codes.Aborted, "ETAG_MISMATCH"},
		"ErrTaskNotFound":      {dispatch.ErrTaskNotFound, codes.NotFound, "TASK_NOT_FOUND"},
		"ErrQueueNotEmpty":     {dispatch.ErrQueueNotEmpty, codes.FailedPrecondition, "QUEUE_NOT_EMPTY"},
		"ErrRuleNotFound":      {dispatch.ErrRuleNotFound, codes.NotFound, "QUEUE_RULE_NOT_FOUND"},
		"ErrHoldExists":        {dispatch.ErrHoldExists, codes.FailedPrecondition, "HOLD_EXISTS"},
		"ErrLeaseLost":         {dispatch.ErrLeaseLost, codes.FailedPrecondition, "LEASE_LOST"},
		"ErrCollectorReplaced": {dispatch.ErrCollectorReplaced, codes.FailedPrecondition, "COLLECTOR_REPLACED"},
		"ErrCollectorBound":    {dispatch.ErrCollectorBound, codes.PermissionDenied, "COLLECTOR_BOUND"},
		"ErrStoreUnavailable":  {dispatch.ErrStoreUnavailable, codes.Unavailable, "STORE_UNAVAILABLE"},
		"ErrNoStandby":         {dispatch.ErrNoStandby, codes.FailedPrecondition, "NO_STANDBY"},
		"ErrStoreFull":         {dispatch.ErrStoreFull, codes.ResourceExhausted, "STORE_FULL"},
		"ErrDraining":          {wire.ErrDraining, codes.Unavailable, "DISPATCHER_DRAINING"},
		"ErrTooManyWaiters":    {dispatch.ErrTooManyWaiters, codes.ResourceExhausted, "TOO_MANY_WAITERS"},
		"ErrPageToken":         {dispatch.ErrPageToken, codes.InvalidArgument, "PAGE_TOKEN_INVALID"},
		// Of claims, which are made again.
		"ErrStaleHolds": {dispatch.ErrStaleHolds, codes.Internal, "INTERNAL"},
		// Found at start.
		"ErrStoreMismatch": {dispatch.ErrStoreMismatch, codes.Internal, "INTERNAL"},
	}
}

func TestStatus_everySentinel(t *testing.T) {
	t.Parallel()
	all := sentinels()
	for name, want := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := wantFault(t, server.StatusOf(t.Context(), fmt.Errorf("do it: %w", want.err)).Err(), want.code, want.reason)
			if want.code == codes.Internal && (strings.Contains(f.message, "do it") || f.metadata["error_id"] != "an-id") {
				t.Errorf("a fault is told as %q, %v", f.message, f.metadata)
			}
		})
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../dispatch/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				if _, ok := all[name.Name]; strings.HasPrefix(name.Name, "Err") && !ok {
					t.Errorf("dispatch.%s is not among the errors that callers are told of", name.Name)
				}
			}
		}
		return true
	})
}

func TestStatus_others(t *testing.T) {
	t.Parallel()
	wantFault(t, server.StatusOf(t.Context(), fmt.Errorf("read: %w", context.Canceled)).Err(), codes.Canceled, "")
	wantFault(t, server.StatusOf(t.Context(), fmt.Errorf("read: %w", context.DeadlineExceeded)).Err(), codes.DeadlineExceeded, "")
	f := wantFault(t, server.StatusOf(t.Context(), errors.New("secret")).Err(), codes.Internal, "INTERNAL")
	if strings.Contains(f.message, "secret") {
		t.Errorf("message %q", f.message)
	}
	long := strings.Repeat("é", 200)
	f = wantFault(t, server.StatusOf(t.Context(), dispatch.Invalid("url", long, "must be shorter")).Err(), codes.InvalidArgument, "INVALID_FIELD")
	if value := f.metadata["value"]; len(value) > 90 || !strings.HasSuffix(value, "...") || !strings.HasPrefix(long, strings.TrimSuffix(value, "...")) {
		t.Errorf("value %q", value)
	}
}
