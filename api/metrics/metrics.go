// Package metrics counts calls for Prometheus: requests by method and code, how
// long they took, how many go on. Other metrics of a program are registered
// in the same Registry.
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

	"github.com/wattmark/wattmark/store"
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

// Register adds a collector.
func (m *Metrics) Register(c prometheus.Collector) error { return m.registry.Register(c) }

// Handler serves all of it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// ServerOptions make a gRPC server count its calls.
func (m *Metrics) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(m.unary), grpc.ChainStreamInterceptor(m.stream)}
}

// unary counts a call of one answer.
func (m *Metrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (res any, err error) {
	defer m.begin(info.FullMethod)(&err)
	return handler(ctx, req)
}

// stream counts a stream and its messages.
func (m *Metrics) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) (err error) {
	defer m.begin(info.FullMethod)(&err)
	return handler(srv, &countedStream{s, m.sent.WithLabelValues(method(info.FullMethod))})
}

// begin counts a call as active until the returned function is called with its outcome.
func (m *Metrics) begin(full string) func(*error) {
	name, start := method(full), time.Now()
	active := m.active.WithLabelValues(name)
	active.Inc()
	return func(err *error) {
		active.Dec()
		m.requests.WithLabelValues(name, status.Code(*err).String()).Inc()
		m.seconds.WithLabelValues(name).Observe(time.Since(start).Seconds())
	}
}

// method is a method's name as in TaskService/ListTasks. Only methods that are
// registered come here, so there are few.
func method(full string) string {
	service, name, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return service[strings.LastIndexByte(service, '.')+1:] + "/" + name
}

// countedStream counts the messages sent.
type countedStream struct {
	grpc.ServerStream
	sent prometheus.Counter
}

// SendMsg counts a message that was sent.
func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		s.sent.Inc()
	}
	return err
}

// Database collects the size of a task database at each scrape.
type Database struct {
	Context context.Context // of the service
	Stats   func(ctx context.Context) (store.Stats, error)
	// Tasks lists tasks, for the last one of each bench.
	Tasks func(ctx context.Context, q store.Query) ([]store.Row, error)
}

// statsTime is how long the database may take to count.
const statsTime = 5 * time.Second

var (
	databaseBytes = prometheus.NewDesc("wattmark_database_bytes", "Size of the task database, by file.",
		[]string{"file"}, nil)
	databaseTasks = prometheus.NewDesc("wattmark_tasks", "Tasks in the database.", nil, nil)
	databaseRuns  = prometheus.NewDesc("wattmark_tasks_running",
		"Tasks whose samples are still coming, or were left behind.", nil, nil)
	databaseUsers = prometheus.NewDesc("wattmark_users", "Users that have tasks.", nil, nil)
	databaseUp    = prometheus.NewDesc("wattmark_database_up", "1 when the database could be read.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (d *Database) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(d, ch) }

// Collect is part of prometheus.Collector.
func (d *Database) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(d.Context, statsTime)
	defer cancel()
	gauge := func(x *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(x, prometheus.GaugeValue, v, labels...)
	}
	s, err := d.Stats(ctx)
	if err != nil { // unknown figures are left out
		gauge(databaseUp, 0)
		return
	}
	gauge(databaseUp, 1)
	gauge(databaseBytes, float64(s.Bytes), "main")
	gauge(databaseBytes, float64(s.LogBytes), "wal")
	gauge(databaseTasks, float64(s.Tasks))
	gauge(databaseRuns, float64(s.Running))
	gauge(databaseUsers, float64(s.Users))
	d.lastTasks(ctx, ch)
}
