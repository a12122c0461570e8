package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// writeAll writes both tables and the picture.
func writeAll(dir string, samples []sample, captures []capture) error {
	rows := [][]string{{
		"t_s", "monitor_pid", "monitor_rss_bytes", "monitor_own_bytes", "monitor_descriptors", "monitor_goroutines", "host_pid", "host_rss_bytes", "host_own_bytes",
		"host_descriptors", "host_goroutines", "meter_rss_bytes", "spool_bytes", "wal_bytes", "database_bytes",
	}}
	for _, s := range samples {
		row := []string{fmt.Sprintf("%.1f", s.At.Seconds())}
		for _, n := range []int64{
			int64(s.Monitor.PID), s.Monitor.RSS, s.Monitor.Own, int64(s.Monitor.Descriptors), int64(s.Monitor.Goroutines), int64(s.Host.PID), s.Host.RSS, s.Host.Own,
			int64(s.Host.Descriptors), int64(s.Host.Goroutines), s.Meter.RSS, s.Spool, s.WAL, s.Database,
		} {
			row = append(row, strconv.FormatInt(n, 10))
		}
		rows = append(rows, row)
	}
	if err := writeCSV(filepath.Join(dir, "samples.csv"), rows); err != nil {
		return err
	}
	rows = [][]string{{"t_s", "work_s", "fault", "task", "state", "scans", "lost", "energy_j", "u_j", "truth_j", "wall_s", "reason"}}
	for _, c := range captures {
		rows = append(rows, []string{
			fmt.Sprintf("%.1f", c.At.Seconds()), fmt.Sprintf("%.0f", c.Length.Seconds()), string(c.Fault), strconv.FormatInt(c.Task, 10), c.State, strconv.FormatInt(c.Stored, 10),
			strconv.FormatInt(c.Lost, 10), fmt.Sprintf("%.4f", c.EnergyJ), fmt.Sprintf("%.4f", c.UJ), fmt.Sprintf("%.4f", c.TruthJ),
			fmt.Sprintf("%.1f", c.Wall.Seconds()), c.Reason + c.Failure,
		})
	}
	if err := writeCSV(filepath.Join(dir, "captures.csv"), rows); err != nil {
		return err
	}
	return picture(filepath.Join(dir, "soak.svg"), samples, captures)
}

func writeCSV(path string, rows [][]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	err = w.WriteAll(rows)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
