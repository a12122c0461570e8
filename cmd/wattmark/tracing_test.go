package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// receiver is a collector that keeps what it is sent.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []received
	more  chan struct{} // closed and made anew with each delivery
}

type received struct {
	service string
	*otlp.Span
}

func (r *receiver) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, from := range q.ResourceSpans {
		service := ""
		for _, a := range from.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, received{service, s})
			}
		}
	}
	close(r.more)
	r.more = make(chan struct{})
	return &collector.ExportTraceServiceResponse{}, nil
}

// collect serves a collector on a free port.
func collect(t *testing.T) (r *receiver, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r = &receiver{more: make(chan struct{})}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return r, l.Addr().String()
}

// trace waits until spans of these names, as "service name", have come of the trace
// that a task belongs to, and returns them all by their ids.
func (r *receiver) trace(t *testing.T, id int64, names ...string) (trace string, spans map[string]received) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		trace, spans = r.of(id)
		more := r.more
		r.mu.Unlock()
		there := map[string]bool{}
		for _, s := range spans {
			there[s.service+" "+s.Name] = true
		}
		missing := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return there[n] })
		if len(missing) == 0 {
			return trace, spans
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("of task %d's trace %q are missing: %q; there are %q", id, trace, missing, slices.Sorted(maps.Keys(there)))
		}
	}
}

func (r *receiver) of(task int64) (trace string, spans map[string]received) {
	for _, s := range r.spans {
		for _, a := range s.Attributes {
			if a.Key == "wattmark.task_id" && a.Value.GetIntValue() == task {
				trace = hex.EncodeToString(s.TraceId)
			}
		}
	}
	spans = map[string]received{}
	for _, s := range r.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			spans[string(s.SpanId)] = s
		}
	}
	return trace, spans
}

// One trace spans both machines, two processes here: every span of the monitor hangs
// below a step of the host's, errors are in it, and log and task name it.
func TestOneTraceSpansBothMachines(t *testing.T) {
	t.Parallel()
	collected, address := collect(t)
	soon := "OTEL_BSP_SCHEDULE_DELAY=20"
	r := newRig(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, soon)
	r.env = []string{soon}
	if code := r.run("--otlp", address, "--benchmark", "half", "--duration", "100ms", "--name", "traced").wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	const service = "wattmark-monitor wattmark.v1.MonitorService/"
	names := []string{service + "StartCapture", service + "StopCapture", service + "ReadCapture", service + "ReleaseCapture", "wattmark-run wattmark run"}
	for _, s := range []string{"task", "start capture", "marker", "work", "stop capture", "read capture", "store", "analysis", "release"} {
		names = append(names, "wattmark-run "+s)
	}
	id, spans := collected.trace(t, 1, names...)
	for _, s := range spans {
		chain := []string{s.Name}
		for p := s; len(p.ParentSpanId) > 0; chain = append(chain, p.Name) {
			p = spans[string(p.ParentSpanId)]
			if p.Span == nil {
				t.Fatalf("%s %q hangs below nothing", s.service, chain)
			}
		}
		if chain[len(chain)-1] != "wattmark run" || s.service == "wattmark-monitor" && (len(chain) < 3 || strings.Contains(s.Name, "Capture") && !slices.Contains(chain, "task")) {
			t.Errorf("%s %q", s.service, chain)
		}
		if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			t.Errorf("%s %s: %v", s.service, s.Name, s.Status)
		}
	}
	x, _ := onlyTask(t, r.db, 1)
	if x.Provenance == nil || x.Provenance.TraceID != id {
		t.Errorf("the task names another trace than %s: %+v", id, x.Provenance)
	}
	r.monitor.await(t, `msg="capture started".* task=traced .*trace_id=`+id)

	if code := r.run("--otlp", address, "--", "false").wait(t); code == 0 {
		t.Fatal("a program that fails did not fail")
	}
	_, spans = collected.trace(t, 2, "wattmark-run work", "wattmark-run wattmark run")
	failed := map[string]bool{}
	for _, s := range spans {
		if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR && len(s.Events) > 0 && s.Events[0].Name == "exception" {
			failed[s.Name] = true
		}
	}
	if got := fmt.Sprint(slices.Sorted(maps.Keys(failed))); got != "[task wattmark run work]" {
		t.Errorf("errors are recorded in %s", got)
	}
	r.free()
	if x, _ := onlyTask(t, r.db, 3); x.Provenance == nil || x.Provenance.TraceID != "" {
		t.Errorf("untraced, the task says %+v", x.Provenance)
	}
}

// A collector that is not there keeps nobody from measuring, and is told of.
func TestNoCollector(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run("--otlp", "127.0.0.1:1", "--benchmark", "half", "--duration", "50ms")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if text, _ := p.err.read(); !strings.Contains(text, "wattmark: traces: ") {
		t.Errorf("said nothing: %s", text)
	}
}
