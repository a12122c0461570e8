package limits

import "github.com/prometheus/client_golang/prometheus"

var (
	descRefused     = prometheus.NewDesc("wattmark_limit_refused_total", "Connections, calls and streams that were refused or ended, by the limit.", []string{"limit"}, nil)
	descConnections = prometheus.NewDesc("wattmark_connections", "Connections that are open.", nil, nil)
	descCalls       = prometheus.NewDesc("wattmark_calls_open", "Calls that are open.", nil, nil)
	descPeers       = prometheus.NewDesc("wattmark_peers", "Peers that are known: those with something open, and those that were there a moment ago.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (g *Guard) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect is part of prometheus.Collector.
func (g *Guard) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range reasons {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(g.refused[r]), string(r))
	}
	ch <- prometheus.MustNewConstMetric(descConnections, prometheus.GaugeValue, float64(g.all))
	ch <- prometheus.MustNewConstMetric(descCalls, prometheus.GaugeValue, float64(g.calls))
	ch <- prometheus.MustNewConstMetric(descPeers, prometheus.GaugeValue, float64(len(g.peers)))
}
