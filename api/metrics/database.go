package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"wattmark/store"
)

// Database tells how large a task database is, whenever it is asked.
type Database struct {
	Stats func(ctx context.Context) (store.Stats, error)
}

// statsTime is how long the database may take to count.
const statsTime = 5 * time.Second

var (
	databaseBytes = prometheus.NewDesc("wattmark_database_bytes", "Size of the task database, by file.", []string{"file"}, nil)
	databaseTasks = prometheus.NewDesc("wattmark_tasks", "Tasks in the database.", nil, nil)
	databaseRuns  = prometheus.NewDesc("wattmark_tasks_running", "Tasks whose samples are still coming, or were left behind.", nil, nil)
	databaseUsers = prometheus.NewDesc("wattmark_users", "Users that have tasks.", nil, nil)
	databaseUp    = prometheus.NewDesc("wattmark_database_up", "1 when the database could be read.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (d *Database) Describe(ch chan<- *prometheus.Desc) {
	for _, x := range []*prometheus.Desc{databaseBytes, databaseTasks, databaseRuns, databaseUsers, databaseUp} {
		ch <- x
	}
}

// Collect is part of prometheus.Collector.
func (d *Database) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTime)
	defer cancel()
	gauge := func(x *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(x, prometheus.GaugeValue, v, labels...)
	}
	s, err := d.Stats(ctx)
	if err != nil { // what is not known is left out
		gauge(databaseUp, 0)
		return
	}
	gauge(databaseUp, 1)
	gauge(databaseBytes, float64(s.Bytes), "main")
	gauge(databaseBytes, float64(s.LogBytes), "wal")
	gauge(databaseTasks, float64(s.Tasks))
	gauge(databaseRuns, float64(s.Running))
	gauge(databaseUsers, float64(s.Users))
}
