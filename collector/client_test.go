package collector_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/metadata"

	"github.com/waggle-crawl/waggle/collector"
	wagglev1 "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// TestCollector_NamesItsLibrary holds that each call has the name and version of the library, once.
func TestCollector_NamesItsLibrary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher()
		var fetching []string
		d.onFetch = func(ctx context.Context, _ int, _ *wagglev1.FetchTaskRequest) (*wagglev1.FetchTaskResponse, error) {
			fetching = clientOf(ctx)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r := start(t, d, collector.HandlerFunc(succeed), nil)
		synctest.Wait()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		calls := map[string][]string{"fetch": fetching}
		for _, beat := range d.beatCalls() {
			calls[fmt.Sprintf("beat, on a stream: %t", beat.streamed)] = beat.client
		}
		for call, names := range calls {
			if len(calls) != 3 || !slices.Equal(names, []string{"waggle-go/0.1.0"}) {
				t.Errorf("%d kinds of calls; %s names %q", len(calls), call, names)
			}
		}
	})
}

func clientOf(ctx context.Context) []string {
	return metadata.ValueFromIncomingContext(ctx, "waggle-client")
}
