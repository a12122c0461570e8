package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
)

// flushTimeout limits the delivery of the remaining spans at the end.
const flushTimeout = 3 * time.Second

// Tracing sends spans to a collector. The methods of a nil Tracing do nothing; it is nil
// unless tracing is wanted.
type Tracing struct{ provider *sdktrace.TracerProvider }

// OtlpFlag adds --otlp, the address of a collector.
func OtlpFlag(fl *pflag.FlagSet, to *string) {
	fl.StringVar(to, "otlp", "", "send OpenTelemetry traces to this collector over gRPC: host:port, http://host:port "+
		"or https://host:port (also OTEL_EXPORTER_OTLP_ENDPOINT)")
}

// tracingWanted reports whether to send spans, by the flag or by OpenTelemetry's variables.
func tracingWanted(endpoint string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// OpenTracing starts to send the spans of a service; nil without an error if tracing is not
// wanted. Errors of delivery go to complain, from another goroutine, and do not affect the
// program. The error handler is global to the process.
func OpenTracing(ctx context.Context, endpoint, service string, complain func(error)) (*Tracing, error) {
	if !tracingWanted(endpoint) {
		return nil, nil
	}
	var o []otlptracegrpc.Option
	switch {
	case strings.Contains(endpoint, "://"):
		o = append(o, otlptracegrpc.WithEndpointURL(endpoint))
	case endpoint != "":
		o = append(o, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, o...)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	here, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", service), attribute.String("service.version", Version()),
		attribute.Int("process.pid", os.Getpid())), resource.Environment())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(complain))
	return &Tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(here))}, nil
}

// WarnOf returns a function that logs an error of delivery, and ignores nil.
func WarnOf(log *slog.Logger) func(error) {
	return func(err error) {
		if err != nil {
			log.Warn("traces could not be delivered", "error", err)
		}
	}
}

// Close delivers the remaining spans; it blocks for at most 3 s, also after ctx has ended.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// options returns the options of otelgrpc's handlers: traces only, since api/metrics exports
// the metrics.
func (t *Tracing) options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
	}
}

// Server returns the options that make a server's calls spans of the caller's trace.
func (t *Tracing) Server() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(t.options()...))}
}

// Dial returns the options that make a client's calls spans and send the trace's ID along.
func (t *Tracing) Dial() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(t.options()...))}
}

// Traced runs f in a span that is the root of a new trace, if tracing is wanted, and delivers
// the spans before it returns f's error.
func (a *App) Traced(ctx context.Context, endpoint, name string, f func(context.Context) error) error {
	complain := func(err error) { fmt.Fprintln(a.Err, "wattmark: traces:", err) }
	var err error
	if a.Tracing, err = OpenTracing(ctx, endpoint, "wattmark-run", complain); err != nil {
		return err
	}
	if a.Tracing == nil {
		return f(ctx)
	}
	inside, span := a.Tracing.provider.Tracer("wattmark").Start(ctx, name)
	err = f(inside)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(otelcodes.Error, err.Error())
	}
	span.End()
	if lost := a.Tracing.Close(ctx); lost != nil {
		complain(lost)
	}
	return err
}

// TracedLog is a slog.Handler that adds trace_id and span_id to records of a sampled trace.
type TracedLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (h TracedLog) Handle(ctx context.Context, r slog.Record) error {
	if c := oteltrace.SpanContextFromContext(ctx); c.IsSampled() {
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h TracedLog) WithAttrs(a []slog.Attr) slog.Handler { return TracedLog{h.Handler.WithAttrs(a)} }

// WithGroup implements slog.Handler.
func (h TracedLog) WithGroup(name string) slog.Handler { return TracedLog{h.Handler.WithGroup(name)} }
