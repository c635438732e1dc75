package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

const aTask = "17-aaaaaaaaaaaaaaaaaaaaaaaaaa"

// badRequest is a request with one field out of its limits.
type badRequest struct {
	name  string
	field string
	call  func(ctx context.Context, b *bed) error
}

// Every field out of its limits is INVALID_ARGUMENT and names the field, the
// value and the limit.
func TestServer_badInput(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "kept")
	for _, bad := range slices.Concat(badFetches(), badReports(), badSpecs(), badOperations(), badHolds()) {
		t.Run(bad.name, func(t *testing.T) {
			f := wantFault(t, bad.call(t.Context(), b), codes.InvalidArgument, "INVALID_FIELD")
			if len(f.violations) == 0 || f.violations[0].GetField() != bad.field {
				t.Fatalf("violations %v, want %s", f.violations, bad.field)
			}
			if f.metadata["field"] != bad.field || f.metadata["limit"] == "" || !strings.Contains(f.message, bad.field) ||
				!strings.Contains(f.message, f.metadata["limit"]) {
				t.Errorf("message %q, metadata %v", f.message, f.metadata)
			}
		})
	}
}

// What is wrong with the wildcards of a pattern is told with the forms there are.
func TestServer_badInput_wildcards(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	for _, pattern := range []string{"a*b", "*a.example", "*.", "*.*.example", "a.*", ".a.example", "*..a.example"} {
		_, err := b.queues.SetQueueRule(t.Context(), &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: pattern}})
		if f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD"); !strings.Contains(f.message, `"*." and a suffix`) {
			t.Errorf("%q: %s", pattern, f.message)
		}
	}
}

// All fields that are wrong are told at once, up to a limit.
func TestServer_badInput_allFields(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	_, err := b.dispatch.FetchTask(t.Context(), &pb.FetchTaskRequest{MaxTasks: -1, MaxBytes: -1})
	if f := faultOf(t, err); len(f.violations) != 4 {
		t.Errorf("violations %v", f.violations)
	}
	_, err = b.dispatch.ReportTask(t.Context(), &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: make([]*pb.TaskReport, 500)})
	if f := faultOf(t, err); len(f.violations) != 20 {
		t.Errorf("%d violations", len(f.violations))
	}
}

// A label whose key is too long is told by what it is of, its length and the limit.
func TestServer_badInput_labels(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	long := strings.Repeat("k", 129)
	_, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: &pb.SourceSpec{Id: "a", Labels: map[string]string{long: "v"}}})
	f := wantFault(t, err, codes.InvalidArgument, "INVALID_FIELD")
	if f.metadata["field"] != "spec.labels.key" || !strings.Contains(f.message, "it is 129 bytes long; the limit is 128") {
		t.Errorf("%s %v", f.message, f.metadata)
	}
}
