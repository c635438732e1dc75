// Package otlp exports the traces of a process, as OpenTelemetry's standard variables say.
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// The variables that decide here whether traces are exported and how. All others are read by the SDK: endpoints, headers,
// certificates, the sampler, the batches, what is known of the process.
const (
	exporter       = "OTEL_TRACES_EXPORTER"
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	disabled       = "OTEL_SDK_DISABLED"
	sampler        = "OTEL_TRACES_SAMPLER"
	samplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	batchQueue     = "OTEL_BSP_MAX_QUEUE_SIZE"
	batchSize      = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
)

// mostSpans may wait to be sent: the SDK has a slot for each from the start.
const mostSpans = 1_000_000

// Start begins to export the traces of a service, by OTLP. It returns nil if the variables do not ask for that. The caller shuts the
// provider down, which sends what is left. An address that nobody answers is no error here; package otel handles it.
func Start(ctx context.Context, env func(string) (string, bool), service, version string) (*trace.TracerProvider, error) {
	get := func(name string) string { value, _ := env(name); return value }
	switch to := get(exporter); {
	case get(disabled) == "true", to == "none", to == "" && get(endpoint) == "" && get(tracesEndpoint) == "":
		return nil, nil //nolint:nilnil // they are off
	case to != "" && to != "otlp":
		return nil, fmt.Errorf("%s=%s: want otlp or none", exporter, to)
	}
	if err := validate(get); err != nil {
		return nil, err
	}
	var client otlptrace.Client
	switch by := cmp.Or(get(tracesProtocol), get(protocol), "http/protobuf"); by {
	case "grpc":
		client = otlptracegrpc.NewClient()
	case "http/protobuf":
		client = otlptracehttp.NewClient()
	default:
		return nil, fmt.Errorf("%s=%s: want grpc or http/protobuf", protocol, by)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process for traces: %w", err)
	}
	sends, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	return trace.NewTracerProvider(trace.WithBatcher(sends), trace.WithResource(about)), nil
}

// samplers are those that the SDK knows; it would take any other for parentbased_always_on.
var samplers = []string{
	"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
}

// validate checks what the SDK would panic at, or else replace: by all traces where a part was wanted.
func validate(get func(string) string) error {
	by := strings.ToLower(strings.TrimSpace(get(sampler)))
	switch {
	case !slices.Contains(samplers, by):
		return fmt.Errorf("%s=%s: want one of %s", sampler, get(sampler), strings.Join(samplers[1:], ", "))
	case strings.HasSuffix(by, "traceidratio") && get(samplerArg) != "":
		if part, err := strconv.ParseFloat(strings.TrimSpace(get(samplerArg)), 64); err != nil || math.IsNaN(part) || part < 0 || part > 1 {
			return fmt.Errorf("%s=%s: want 0 to 1", samplerArg, get(samplerArg))
		}
	}
	for _, name := range []string{batchQueue, batchSize} {
		if text := get(name); text != "" {
			if n, err := strconv.Atoi(strings.TrimSpace(text)); err != nil || n < 1 || n > mostSpans {
				return fmt.Errorf("%s=%s: want 1 to %d", name, text, mostSpans)
			}
		}
	}
	return nil
}
