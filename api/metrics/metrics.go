package metrics

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Metrics counts the calls of a gRPC server. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	active   *prometheus.GaugeVec
	sent     *prometheus.CounterVec
}

// New returns counters of calls, with those of the Go runtime and of the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattmark_rpc_requests_total", Help: "Calls that ended, by method and gRPC code.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "wattmark_rpc_duration_seconds", Help: "How long calls took; streams until they ended.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}, []string{"method"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wattmark_rpc_active", Help: "Calls that go on.",
		}, []string{"method"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wattmark_rpc_stream_messages_total", Help: "Messages that streams sent.",
		}, []string{"method"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.active, m.sent,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Register adds what else there is to tell.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// Handler serves all of it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// ServerOptions make a gRPC server count its calls.
func (m *Metrics) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(m.unary), grpc.ChainStreamInterceptor(m.stream)}
}

func (m *Metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	end := m.begin(info.FullMethod)
	res, err := handler(ctx, req)
	end(err)
	return res, err
}

func (m *Metrics) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	end := m.begin(info.FullMethod)
	err := handler(srv, &countedStream{s, m.sent.WithLabelValues(method(info.FullMethod))})
	end(err)
	return err
}

func (m *Metrics) begin(full string) func(error) {
	name, start := method(full), time.Now()
	active := m.active.WithLabelValues(name)
	active.Inc()
	return func(err error) {
		active.Dec()
		m.requests.WithLabelValues(name, status.Code(err).String()).Inc()
		m.seconds.WithLabelValues(name).Observe(time.Since(start).Seconds())
	}
}

// method is a method's name as in TaskService/ListTasks. Only methods that are
// registered come here, so there are few.
func method(full string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return service[strings.LastIndexByte(service, '.')+1:] + "/" + name
}

// countedStream counts what is sent.
type countedStream struct {
	grpc.ServerStream
	sent prometheus.Counter
}

func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.sent.Inc()
	}
	return err
}
