package main

import (
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

// lastWords is how long the spans that are left may take to be delivered.
const lastWords = 3 * time.Second

// tracing sends spans to a collector. Nil, which is usual, does nothing.
type tracing struct{ provider *sdktrace.TracerProvider }

func otlpFlag(fl *pflag.FlagSet, to *string) {
	fl.StringVar(to, "otlp", "", "send OpenTelemetry traces to this collector over gRPC: host:port, http://host:port or https://host:port (also OTEL_EXPORTER_OTLP_ENDPOINT)")
}

// wanted reports whether spans are to be sent, by the flag or by the variables that
// OpenTelemetry has for all programs.
func wanted(endpoint string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return firstOf(endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// openTracing begins to send the spans of a service, if that is wanted. Trouble in
// sending goes to complain, and stops nothing.
func openTracing(ctx context.Context, endpoint, service string, complain func(error)) (*tracing, error) {
	if !wanted(endpoint) {
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
		attribute.String("service.name", service), attribute.String("service.version", version()), attribute.Int("process.pid", os.Getpid()),
	), resource.Environment())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(complain))
	return &tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(here))}, nil
}

// warnOf logs trouble with traces.
func warnOf(log *slog.Logger) func(error) {
	return func(err error) {
		if err != nil {
			log.Warn("traces could not be delivered", "error", err)
		}
	}
}

// close delivers what is left.
func (t *tracing) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// options are those of gRPC's own handlers of calls. Of metrics we have our own.
func (t *tracing) options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
	}
}

// server makes a server's calls spans of the trace that the caller is in.
func (t *tracing) server() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(t.options()...))}
}

// dial makes a client's calls spans, and tells the server of the trace.
func (t *tracing) dial() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(t.options()...))}
}

// traced runs a command within a trace of its own, if that is wanted.
func (a *app) traced(ctx context.Context, endpoint, name string, f func(context.Context) error) error {
	complain := func(err error) { fmt.Fprintln(a.err, "wattmark: traces:", err) }
	var err error
	if a.tracing, err = openTracing(ctx, endpoint, "wattmark-run", complain); err != nil {
		return err
	}
	if a.tracing == nil {
		return f(ctx)
	}
	inside, span := a.tracing.provider.Tracer("wattmark").Start(ctx, name)
	err = f(inside)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(otelcodes.Error, err.Error())
	}
	span.End()
	if lost := a.tracing.close(ctx); lost != nil {
		complain(lost)
	}
	return err
}

// tracedLog adds the trace to what is logged of a call that belongs to one.
type tracedLog struct{ slog.Handler }

func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	if c := oteltrace.SpanContextFromContext(ctx); c.IsSampled() {
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h tracedLog) WithAttrs(a []slog.Attr) slog.Handler { return tracedLog{h.Handler.WithAttrs(a)} }

func (h tracedLog) WithGroup(name string) slog.Handler { return tracedLog{h.Handler.WithGroup(name)} }
