package measurement

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope names this package in traces.
const scope = "wattmark/hostagent/measurement"

// step begins a step of the trace that ctx belongs to; where it belongs to none, which
// is usual, nothing is done and nothing allocated. The step ends when done is called,
// with what became of it.
func step(ctx context.Context, name string) (inside context.Context, done func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, untraced
	}
	inside, s := parent.TracerProvider().Tracer(scope).Start(ctx, name)
	return inside, func(err error) {
		if err != nil {
			s.RecordError(err)
			s.SetStatus(codes.Error, err.Error())
		}
		s.End()
	}
}

func untraced(error) {}

// annotate adds numbers and names to the step that ctx is in.
func annotate(ctx context.Context, a ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).SetAttributes(a...)
}

// traceID is the trace that ctx belongs to, in hexadecimal; empty for none.
func traceID(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsSampled() {
		return c.TraceID().String()
	}
	return ""
}
