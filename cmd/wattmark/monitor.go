package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"wattmark/cmd/config"
)

// benchFlags say what a monitor measures with.
type benchFlags struct {
	file, instrument, port, gpu string
	records                     string // folder of the calibration records
	nominal                     bool   // leave them out
}

// monitorFlags are those of wattmark monitor.
type monitorFlags struct {
	benchFlags
	serviceFlags
	listen, spool string
	drain, keep   time.Duration
	http          webFlags
	otlp          string
	access        accessFlags
	limits        limitFlags
	room          roomFlags
	publish       publishFlags
}

// defaultDrain is how long a capture may go on when a service manager stops the
// monitor; packaging/systemd gives it more before it kills.
const defaultDrain = time.Minute

func (a *app) monitorCmd() *cobra.Command {
	var f monitorFlags
	c := &cobra.Command{
		Use: "monitor", Short: "Serve the meter: capture, find markers, stream", Args: cobra.NoArgs,
		Long: `Serve the machine with the meter. A bench file (--bench) says how channels make
rails; --instrument alone takes the meter's own description.

Calibration records (wattmark calibrate) are read from their folder whenever the
instrument is opened; those that do not fit, or have expired, are told.

Samples wait in the spool until a host says that it has them safe, also over a
restart of either side.

With --cluster captures are published to a cluster (wattmark cluster) as they are
taken, also where no host ever fetches them; what a host released is dropped only once
the cluster has it (docs/scale.md).

As a service (docs/operations.md): a configuration file has these flags as keys,
with _ for -; SIGHUP reads it and the bench file again, and drops no capture;
SIGTERM takes no new captures and lets the one that runs end within --drain, a
second one ends it at once, as SIGINT does.

Who is let in: on this machine everybody, unless --auth names the folder of wattmark
auth init; other machines over TLS alone, with a token or a certificate
(docs/security.md).`,
		Example: `  wattmark monitor --bench bench.yaml --auth /etc/wattmark/auth --listen :7551
  wattmark monitor --instrument powersensor3 --port /dev/ttyACM0
  wattmark monitor --config /etc/wattmark/monitor.yaml
  wattmark monitor --instrument nvml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := f.flags(cmd)
			log := a.serviceLog(&f.level)
			r := config.NewReloader(flags, log)
			var err error
			if r.File, err = f.serviceFlags.load(cmd); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return withCode(exitUsage, err)
			}
			if err := f.http.check(); err != nil {
				return err
			}
			return a.monitor(cmd.Context(), &f, r, log)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.file, "bench", "", "bench file")
	fl.StringVar(&f.instrument, "instrument", "", "meter without a bench file; wattmark instruments --kinds lists them")
	fl.StringVar(&f.port, "port", "", "where the meter is: /dev/ttyACM0, tcp:host:port, usbtmc:/dev/usbtmc0, or a recording")
	fl.StringVar(&f.gpu, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	fl.StringVar(&f.records, "calibration", "", "folder of the calibration records (default: calibration/ beside the bench file)")
	fl.StringVar(&f.listen, "listen", defaultMonitor, "address to serve on; another one than this machine's own wants --auth")
	otlpFlag(fl, &f.otlp)
	fl.StringVar(&f.spool, "spool", defaultSpool(), "directory of the spool")
	f.access.addTo(fl)
	f.http.addTo(fl, "also serve metrics for Prometheus at /metrics of this address, as in 127.0.0.1:7554; empty for not")
	fl.DurationVar(&f.drain, "drain", defaultDrain, "how long a capture may go on after SIGTERM")
	fl.DurationVar(&f.keep, "keep", 0, "drop captures that no host has fetched so long after they ended, counted while a monitor runs; 0 keeps them")
	f.limits.addTo(fl)
	f.room.addTo(fl)
	f.publish.addTo(fl)
	f.addTo(c, "monitor")
	return c
}

func (f *monitorFlags) check() error {
	switch {
	case (f.file == "") == (f.instrument == ""):
		return fmt.Errorf("name a bench file with --bench, or a meter with --instrument and --port")
	case f.publish.after < 0:
		return fmt.Errorf("--record-after: want 0 or more")
	case f.drain < 0 || f.keep < 0:
		return fmt.Errorf("--drain and --keep: want 0 or more")
	}
	return nil
}

// defaultSpool is a directory that survives a restart.
func defaultSpool() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "wattmark", "spool")
}
