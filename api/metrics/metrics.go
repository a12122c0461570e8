// Package metrics counts calls for Prometheus: requests by method and code, how
// long they took, how many go on. Other metrics of a program are registered
// in the same Registry.
package metrics

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
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

// Bench names a bench in labels.
type Bench struct{ Name, GPU string } // GPU is its UUID, empty where unknown

// Power exports the watts and joules of benches. Live averages are watched from a scrape on
// for scrapeKeeps, so that what is not scraped costs nothing. A counter of joules is the
// integral of the averages that arrived, and the counter of seconds beside it the time that
// they cover: neither goes on while nothing is sampled.
type Power struct {
	// Watch hands live averages to see until ctx ends. idle also samples free benches.
	Watch func(ctx context.Context, idle bool, see func(Bench, session.Moment)) error
	Idle  bool // a scrape counts as a look at idle benches

	mu      sync.Mutex
	scraped time.Time
	wake    chan struct{} // buffered by one: there was a scrape
	benches map[Bench]*railSums
}

const (
	// scrapeKeeps is longer than usual scrape intervals, 15 s to 1 min.
	scrapeKeeps = 2 * time.Minute
	// PowerEvery is the length of the averages.
	PowerEvery = time.Second
	// staleAfter is the age at which an average is no gauge any more.
	staleAfter = 10 * time.Second
)

// railSums are the sums of one bench.
type railSums struct {
	capture string
	t       measure.Seconds // of the last average, in device time
	at      time.Time
	watts   map[string]measure.Watt // by rail
	joules  map[string]railEnergy
	seconds measure.Seconds
}

// railEnergy is the integral of a rail's power. A rail without a load reads some milliwatts below
// zero at times: shown, the largest value so far, does not fall, as a counter that falls stands
// for a restart, after which rate() adds its whole value again.
type railEnergy struct{ sum, shown measure.Joule }

// NewPower returns a collector without benches; Run feeds it.
func NewPower(idle bool, watch func(context.Context, bool, func(Bench, session.Moment)) error) *Power {
	return &Power{Watch: watch, Idle: idle, wake: make(chan struct{}, 1), benches: map[Bench]*railSums{}}
}

// Run watches while there are scrapes, until ctx ends.
func (p *Power) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for left := p.left(); left > 0 && ctx.Err() == nil; left = p.left() {
			watching, cancel := context.WithTimeout(ctx, left)
			_ = p.Watch(watching, p.Idle, p.see)
			if watching.Err() == nil {
				_ = backoff.Sleep(watching, PowerEvery) // the bench does not answer, or has ended the watch
			}
			cancel()
		}
	}
}

// left returns the time for which the last scrape still keeps up the watch.
func (p *Power) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.scraped.Add(scrapeKeeps))
}

// see adds an average. The first one of a capture, and one after a pause of staleAfter, begins
// an integral: the time that it covers is unknown.
func (p *Power) see(b Bench, m session.Moment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.benches[b]
	if s == nil {
		s = &railSums{joules: map[string]railEnergy{}}
		p.benches[b] = s
	}
	dt := m.T - s.t
	follows := s.capture == m.CaptureID && !s.at.IsZero() && dt > 0 && dt < measure.Seconds(staleAfter.Seconds())
	s.capture, s.t, s.at = m.CaptureID, m.T, time.Now()
	if len(m.Rails) == 0 {
		s.at = time.Time{} // the instrument does not answer
		return
	}
	s.watts = make(map[string]measure.Watt, len(m.Rails))
	for _, r := range m.Rails {
		s.watts[r.Rail] = r.Power
		if !follows || !measure.Known(r.Power) { // one that is unknown would stay in the sum for good
			continue
		}
		e := s.joules[r.Rail]
		e.sum += measure.Joule(float64(r.Power) * float64(dt))
		s.joules[r.Rail] = railEnergy{e.sum, max(e.shown, e.sum)}
	}
	if follows {
		s.seconds += dt
	}
}

var (
	railLabels  = []string{"bench", "gpu", "rail"}
	benchLabels = []string{"bench", "gpu"}
	powerWatts  = prometheus.NewDesc("wattmark_power_watts",
		"Mean power by rail over the last second, while it is sampled.", railLabels, nil)
	powerJoules = prometheus.NewDesc("wattmark_energy_joules_total",
		"Energy by rail over the time that was sampled while this was scraped.", railLabels, nil)
	powerSeconds = prometheus.NewDesc("wattmark_energy_seconds_total",
		"Time that wattmark_energy_joules_total covers.", benchLabels, nil)
	lastJoules = prometheus.NewDesc("wattmark_last_task_energy_joules",
		"Energy of the newest complete task of a bench.", benchLabels, nil)
	lastU = prometheus.NewDesc("wattmark_last_task_uncertainty_joules",
		"Its expanded uncertainty (k = 2).", benchLabels, nil)
	lastSeconds = prometheus.NewDesc("wattmark_last_task_duration_seconds", "The length of its window.", benchLabels, nil)
	lastBegin   = prometheus.NewDesc("wattmark_last_task_launch_timestamp_seconds", "When it was launched.",
		benchLabels, nil)
)

// Describe implements prometheus.Collector. It is no scrape.
func (p *Power) Describe(ch chan<- *prometheus.Desc) {
	ch <- powerWatts
	ch <- powerJoules
	ch <- powerSeconds
}

// Collect implements prometheus.Collector, and keeps up the watch.
func (p *Power) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scraped = time.Now()
	backoff.Nudge(p.wake)
	for b, s := range p.benches {
		if time.Since(s.at) < staleAfter {
			for rail, w := range s.watts {
				ch <- prometheus.MustNewConstMetric(powerWatts, prometheus.GaugeValue, float64(w), b.Name, b.GPU, rail)
			}
		}
		for rail, j := range s.joules {
			ch <- prometheus.MustNewConstMetric(powerJoules, prometheus.CounterValue, float64(j.shown), b.Name, b.GPU, rail)
		}
		ch <- prometheus.MustNewConstMetric(powerSeconds, prometheus.CounterValue, float64(s.seconds), b.Name, b.GPU)
	}
}

// lastAmong is the number of newest tasks among which Database looks for the last of each bench.
const lastAmong = 100

// lastTasks sends the newest complete task of each bench; those of imported recordings count
// for the bench that they name.
func (d *Database) lastTasks(ctx context.Context, ch chan<- prometheus.Metric) {
	rows, err := d.Tasks(ctx, store.Query{Limit: lastAmong})
	if err != nil {
		return
	}
	slices.SortStableFunc(rows, func(a, b store.Row) int { return b.Launched.Compare(a.Launched) })
	last := map[Bench]store.Row{}
	for _, r := range rows {
		b := Bench{r.Bench, r.GPUUUID}
		if _, known := last[b]; !known && r.State == store.Complete && r.Result != nil {
			last[b] = r
		}
	}
	for b, r := range last {
		for desc, v := range map[*prometheus.Desc]float64{
			lastJoules: float64(r.Result.Total.Energy), lastU: float64(r.Result.Total.U),
			lastSeconds: float64(r.Result.To - r.Result.From), lastBegin: float64(r.Launched.UnixMilli()) / 1e3,
		} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, b.Name, b.GPU)
		}
	}
}
