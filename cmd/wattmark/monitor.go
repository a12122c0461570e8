package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

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
			return a.monitor(cmd.Context(), f, listen, spool)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.file, "bench", "", "bench file")
	fl.StringVar(&f.instrument, "instrument", "", "meter without a bench file; wattmark instruments --kinds lists them")
	fl.StringVar(&f.port, "port", "", "where the meter is: /dev/ttyACM0, tcp:host:port, usbtmc:/dev/usbtmc0, or a recording")
	fl.StringVar(&f.gpu, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	fl.StringVar(&f.records, "calibration", "", "folder of the calibration records (default: calibration/ beside the bench file)")
	fl.StringVar(&listen, "listen", defaultMonitor, "address to serve on; it is open to all who reach it, so keep it local or behind a tunnel")
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

func (a *app) monitor(ctx context.Context, f benchFlags, listen, spool string) error {
	b, closeBench, err := openBench(f)
	if err != nil {
		return err
	}
	defer closeBench()
	b.Calibrate = calibration.Folder(firstOf(f.records, string(calibration.Beside(f.file)))).Calibrate
	log := slog.New(slog.NewTextHandler(a.err, nil))
	g, ctx := errgroup.WithContext(ctx)
	address, err := startMonitor(ctx, g, monitor.Config{Bench: b, Dir: spool, Version: version(), Log: log}, listen)
	if err != nil {
		return err
	}
	log.Info("serving the bench", "bench", b.Name, "address", address, "spool", spool)
	return g.Wait()
}
