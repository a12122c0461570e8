package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wattmark/wattmark/api/limits"
	"github.com/wattmark/wattmark/api/metrics"
	"github.com/wattmark/wattmark/api/web"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/capture"
)

// monitorStats collects the counters of a bench for Prometheus.
type monitorStats struct{ stats func() capture.Stats }

// The metrics; names and help are part of the interface.
var (
	monCaptures = prometheus.NewDesc("wattmark_monitor_captures_total", "Captures begun, and found in the spool.", nil,
		nil)
	monHeld = prometheus.NewDesc("wattmark_monitor_captures_held", "Captures in the spool, by state.",
		[]string{"state"}, nil)
	monScans = prometheus.NewDesc("wattmark_monitor_scans_total", "Scans taken.", nil, nil)
	monGaps  = prometheus.NewDesc("wattmark_monitor_gaps_total", "Gaps between scans.", nil, nil)
	monLost  = prometheus.NewDesc("wattmark_monitor_lost_scans_total", "Scans lost in gaps.", nil, nil)
	monOver  = prometheus.NewDesc("wattmark_monitor_over_range_total", "Readings at the end of a converter's range.",
		nil, nil)
	monSpool = prometheus.NewDesc("wattmark_monitor_spool_bytes", "Size of the captures in the spool.", nil, nil)
	monAside = prometheus.NewDesc("wattmark_monitor_spool_set_aside",
		"Entries of the spool that could not be used when the monitor started.", nil, nil)
	monBusy    = prometheus.NewDesc("wattmark_monitor_busy", "1 while somebody has the bench.", nil, nil)
	monTrouble = prometheus.NewDesc("wattmark_monitor_instrument_trouble",
		"1 from a failure of the instrument until it has answered again.", nil, nil)
	monLag = prometheus.NewDesc("wattmark_monitor_lag_seconds",
		"How far the samples of the running capture are behind the wall clock.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m monitorStats) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector from one snapshot, so that the values
// agree.
func (m monitorStats) Collect(ch chan<- prometheus.Metric) {
	s := m.stats()
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, c := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{{monCaptures, s.Captures}, {monScans, s.Scans}, {monGaps, s.Gaps}, {monLost, s.Lost}, {monOver, s.OverRange}} {
		put(c.desc, prometheus.CounterValue, float64(c.value))
	}
	for state := session.Arming; state <= session.Incomplete; state++ {
		put(monHeld, prometheus.GaugeValue, float64(s.Held[state]), state.String())
	}
	put(monSpool, prometheus.GaugeValue, float64(s.SpoolBytes))
	put(monAside, prometheus.GaugeValue, float64(s.SetAside))
	put(monLag, prometheus.GaugeValue, float64(s.Lag))
	for d, yes := range map[*prometheus.Desc]bool{monBusy: s.Busy, monTrouble: s.Trouble} {
		v := 0.0
		if yes {
			v = 1
		}
		put(d, prometheus.GaugeValue, v)
	}
}

// serveMetrics serves /metrics, and profiles if wanted, until stop is called,
// which waits up to two seconds for open requests.
func serveMetrics(ctx context.Context, counts *metrics.Metrics, guard *limits.Guard, stats func() capture.Stats,
	f webFlags, x *daemon.Access, log *slog.Logger,
) (stop func(), err error) {
	if err := errors.Join(counts.Register(monitorStats{stats}), counts.Register(guard)); err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	l, err := x.Listen(ctx, f.listen, "choose another --http")
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	l, scheme := x.Web(guard.Listen(l))
	ask, user := x.Ask(ctx)
	site := web.Beside(web.Options{
		Metrics: counts.Handler(), Profiles: f.profiles, Loopback: web.IsLoopback(f.listen), Ask: ask,
	}, http.NotFoundHandler())
	s := web.NewServer(l, guard.Handler(site, user), daemon.Calm(log))
	go func() {
		if err := s.Serve(); err != nil {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	log.Info("serving metrics", "address", scheme+l.Addr().String()+"/metrics")
	return func() { s.Stop(ctx, 2*time.Second) }, nil
}
