// Package service has the long-lived commands: the monitor, the host with its page, JSON
// API and programs' socket, and the credentials of both (auth, takeover). Each is an
// errgroup of parts with Run(ctx); SIGTERM drains, SIGHUP reloads.
package service

import (
	"context"
	_ "embed"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/daemon"
	"github.com/wattmark/wattmark/cmd/internal/session"
)

// monitorFlags are the flags of wattmark monitor.
type monitorFlags struct {
	session.BenchFlags
	daemon.ServiceFlags
	listen, spool string
	// drain is the time a capture may go on after SIGTERM; keep that after which a
	// capture never fetched is dropped, 0 for never.
	drain, keep time.Duration
	http        webFlags
	otlp        string
	access      daemon.AccessFlags
	limits      daemon.LimitFlags
	room        daemon.RoomFlags
	publish     publishFlags
}

// defaultDrain is the default of --drain; the unit in packaging/systemd allows
// more before it kills.
const defaultDrain = time.Minute

// monitorCmd returns monitor.
func monitorCmd(a *cli.App) *cobra.Command {
	var f monitorFlags
	c := f.Command(a, "monitor", "Serve the meter: capture, find markers, stream",
		func(ctx context.Context, r *config.Reloader, log *slog.Logger) error {
			if err := f.check(); err != nil {
				return err
			}
			return runMonitor(ctx, a, &f, r, log)
		})
	f.addFlags(c)
	return c
}

// addFlags defines the flags on c, the keys of the configuration file included.
func (f *monitorFlags) addFlags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.File, "bench", "", "bench file")
	fl.StringVar(&f.Instrument, "instrument", "", "meter without a bench file; wattmark instruments --kinds lists them")
	fl.StringVar(&f.Port, "port", "",
		"where the meter is: /dev/ttyACM0, tcp:host:port, usbtmc:/dev/usbtmc0, or a recording")
	fl.StringVar(&f.GPU, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	fl.StringVar(&f.Records, "calibration", "",
		"folder of the calibration records (default: calibration/ beside the bench file)")
	fl.StringVar(&f.listen, "listen", cli.DefaultMonitor,
		"address to serve on; another one than this machine's own wants --auth")
	cli.OtlpFlag(fl, &f.otlp)
	fl.StringVar(&f.spool, "spool", DefaultSpool(), "directory of the spool")
	f.access.AddTo(fl)
	f.http.addTo(fl, "also serve metrics for Prometheus at /metrics of this address, as in 127.0.0.1:7554; empty for not")
	fl.DurationVar(&f.drain, "drain", defaultDrain, "how long a capture may go on after SIGTERM")
	fl.DurationVar(&f.keep, "keep", 0,
		"drop captures that no host has fetched so long after they ended, counted while a monitor runs; 0 keeps them")
	f.limits.AddTo(fl)
	f.room.AddTo(fl)
	f.publish.addTo(fl)
	f.AddTo(c, "monitor")
}

// check refuses contradictory flags before anything is opened.
func (f *monitorFlags) check() error {
	switch {
	case (f.File == "") == (f.Instrument == ""):
		return cli.Usagef("name a bench file with --bench, or a meter with --instrument and --port")
	case f.publish.after < 0:
		return cli.Usagef("--record-after: want 0 or more")
	case f.drain < 0 || f.keep < 0:
		return cli.Usagef("--drain and --keep: want 0 or more")
	}
	return f.http.check()
}

// DefaultSpool returns a directory that survives a restart, if the user has one.
func DefaultSpool() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "wattmark", "spool")
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.Machines, help, monitorCmd(a), hostCmd(a), authCmd(a), takeoverCmd(a))
}
