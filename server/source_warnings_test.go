package server_test

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// What is done is answered as done, also when nobody can say what to warn of; the line
// of the call tells why there is no warning.
func TestSourceService_withoutWarnings(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	eu := &pb.SourceSpec{Id: "s", Pool: "eu"}
	calls := map[string]func() ([]string, error){
		"CreateSource": func() ([]string, error) {
			r, err := b.sources.CreateSource(t.Context(), &pb.CreateSourceRequest{Spec: eu})
			return r.GetWarnings(), err
		},
		"UpdateSource": func() ([]string, error) {
			r, err := b.sources.UpdateSource(t.Context(), &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "s", Pool: "us"}})
			return r.GetWarnings(), err
		},
		"ApplySources": func() ([]string, error) {
			r, err := b.sources.ApplySources(t.Context(), &pb.ApplySourcesRequest{Specs: []*pb.SourceSpec{eu}})
			return r.GetResults()[0].GetWarnings(), err
		},
	}
	for _, name := range []string{"CreateSource", "UpdateSource", "ApplySources"} {
		b.store.breakCall("ListCollectors Since", func() error { return fmt.Errorf("list: %w", dispatch.ErrStoreUnavailable) })
		if warnings, err := calls[name](); err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v, %v", name, warnings, err)
		}
		lines := b.logs.FilterFieldKey("no_warnings").FilterField(zap.String("grpc.method", name))
		if lines.Len() != 1 || lines.All()[0].Message != "operator's call" {
			t.Errorf("%s: logged %v", name, lines.All())
		}
		if counted := lines.FilterFieldKey("changed").Len(); name == "ApplySources" && counted != 1 {
			t.Errorf("the line of %s does not say how many it changed", name)
		}
		b.store.breakCall("ListCollectors Since", nil)
	}
	if warnings, err := calls["UpdateSource"](); err != nil || len(warnings) != 1 {
		t.Errorf("%v, %v", warnings, err)
	}
}
