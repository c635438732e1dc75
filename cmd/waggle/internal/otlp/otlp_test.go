package otlp_test

import (
	"testing"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/otlp"
)

// What the SDK would panic at, or take for something else, is refused before anything starts.
func TestStart_Variables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value string
		ok          bool
	}{
		{"OTEL_BSP_MAX_QUEUE_SIZE", "-4", false},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "many", false},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "100000000000", false},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "100", true},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1", false},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10", true},
		{"OTEL_TRACES_SAMPLER", "ratio", false},
		{"OTEL_TRACES_SAMPLER", "Always_Off", true},
		{"OTEL_TRACES_SAMPLER_ARG", "1%", false},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN", false},
		{"OTEL_TRACES_SAMPLER_ARG", "7", false},
		{"OTEL_TRACES_SAMPLER_ARG", "0.01", true},
	} {
		env := map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", tt.name: tt.value,
		}
		provider, err := otlp.Start(t.Context(), func(name string) (string, bool) { v, ok := env[name]; return v, ok }, "waggle", "v1")
		if (err == nil) != tt.ok {
			t.Errorf("%s=%s: %v", tt.name, tt.value, err)
		}
		if provider != nil {
			if err := provider.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
