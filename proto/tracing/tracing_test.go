package tracing_test

import (
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/waggle-crawl/waggle/proto/tracing"
)

// A context that is sampled comes back as it was; another one, or what is none, is not carried.
func TestSampled(t *testing.T) {
	t.Parallel()
	const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for sent, want := range map[string]string{
		sampled: sampled,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00": "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"nonsense": "",
		"":         "",
	} {
		if got := tracing.Sampled(tracing.With(t.Context(), sent)); got != want {
			t.Errorf("%q is carried as %q, want %q", sent, got, want)
		}
	}
	if c := trace.SpanContextFromContext(tracing.With(t.Context(), sampled)); !c.IsRemote() {
		t.Error("it is not remote")
	}
}
