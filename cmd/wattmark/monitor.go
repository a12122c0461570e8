package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"wattmark/api/metrics"
	"wattmark/monitor"
	"wattmark/monitor/calibration"
)

// benchFlags say what a monitor measures with.
type benchFlags struct {
	file, instrument, port, gpu string
	records                     string // folder of the calibration records
}

func (a *app) monitorCmd() *cobra.Command {
	var f benchFlags
	var listen, spool string
	var http webFlags
	c := &cobra.Command{
		Use: "monitor", Short: "Serve the meter: capture, find markers, stream", Args: cobra.NoArgs,
		Long: `Serve the machine with the meter. A bench file (--bench) says how channels make
rails; --instrument alone takes the meter's own description.

Calibration records (wattmark calibrate) are read from their folder whenever the
instrument is opened; those that do not fit, or have expired, are told.

Samples wait in the spool until a host says that it has them safe, also over a
restart of either side.`,
		Example: `  wattmark monitor --bench bench.yaml --listen :7551
  wattmark monitor --instrument powersensor3 --port /dev/ttyACM0
  wattmark monitor --instrument nvml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (f.file == "") == (f.instrument == "") {
				return withCode(exitUsage, fmt.Errorf("name a bench file with --bench, or a meter with --instrument and --port"))
			}
			if err := http.check(); err != nil {
				return err
			}
			return a.monitor(cmd.Context(), f, listen, spool, http)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.file, "bench", "", "bench file")
	fl.StringVar(&f.instrument, "instrument", "", "meter without a bench file; wattmark instruments --kinds lists them")
	fl.StringVar(&f.port, "port", "", "where the meter is: /dev/ttyACM0, tcp:host:port, usbtmc:/dev/usbtmc0, or a recording")
	fl.StringVar(&f.gpu, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	fl.StringVar(&f.records, "calibration", "", "folder of the calibration records (default: calibration/ beside the bench file)")
	fl.StringVar(&listen, "listen", defaultMonitor, "address to serve on; it is open to all who reach it, so keep it local or behind a tunnel")
	fl.StringVar(&http.listen, "http", "", "also serve metrics for Prometheus at /metrics of this address, as in 127.0.0.1:7554; empty for not")
	fl.BoolVar(&http.public, "http-public", false, "let --http be an address that other machines can reach")
	fl.BoolVar(&http.profiles, "pprof", false, "serve profiles of this program below /debug/pprof/ of --http")
	fl.StringVar(&spool, "spool", defaultSpool(), "directory of the spool")
	return c
}

// defaultSpool is a directory that survives a restart.
func defaultSpool() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "wattmark", "spool")
}

func (a *app) monitor(ctx context.Context, f benchFlags, listen, spool string, http webFlags) error {
	b, closeBench, err := openBench(f)
	if err != nil {
		return err
	}
	defer closeBench()
	b.Calibrate = calibration.Folder(firstOf(f.records, string(calibration.Beside(f.file)))).Calibrate
	log := slog.New(slog.NewTextHandler(a.err, nil))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	counts := metrics.New()
	m, address, err := runMonitor(ctx, g, monitor.Config{
		Bench: b, Dir: spool, Version: version(), Log: log, ServerOptions: counts.ServerOptions(),
	}, listen)
	if err == nil && http.listen != "" {
		err = serveMetrics(ctx, g, counts, m.Stats, http, log)
	}
	if err != nil {
		cancel()
		return errors.Join(err, g.Wait())
	}
	log.Info("serving the bench", "bench", b.Name, "address", address, "spool", spool)
	return g.Wait()
}
