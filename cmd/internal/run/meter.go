package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
)

// meterFlags choose the meter of a measurement: a bench that this process reads within itself,
// or a monitor. named: the monitor's address was given, by flag, environment or configuration.
type meterFlags struct {
	session.BenchFlags
	named bool
}

// addMeter adds the flags that choose the meter.
func (f *RunFlags) addMeter(fl *pflag.FlagSet) {
	f.meter.AddTo(fl)
	cli.MonitorFlag(fl, &f.Monitor, "in place of these: the monitor that has the meter; with --gpus several, with commas "+
		"between them")
}

// checkMeter refuses flags that name two meters, or one that cannot measure what it should.
// fl is of the command line.
func (f *RunFlags) checkMeter(fl *pflag.FlagSet) error {
	f.meter.named = fl.Changed("monitor")
	within := f.meter.File != "" || f.meter.Instrument != ""
	switch {
	case !within && (f.meter.Port != "" || f.meter.Records != ""):
		return cli.Usagef("--port and --calibration go with --instrument or --bench")
	case !within:
		return nil
	case cli.Given(fl, "monitor"):
		return cli.Usagef("--monitor names a meter, and so does --instrument or --bench: keep one of them")
	case f.gpus != "" && f.meter.Instrument != nvml.Kind:
		return cli.Usagef("--bench and --instrument read one meter, of one GPU: measure several GPUs with a monitor for " +
			"each (--monitor), or by their own sensors (--instrument nvml)")
	}
	return f.meter.Check()
}

// withMeter calls do with flags whose Monitor is the meter's: where a bench is named, or no
// monitor is and none answers at the default address, one within this process. The latter
// reads the GPU's own sensor, with a caution.
func (f RunFlags) withMeter(ctx context.Context, a *cli.App, do func(context.Context, RunFlags) error) error {
	if f.meter.File == "" && f.meter.Instrument == "" {
		if f.meter.named || listens(ctx, f.Monitor) {
			return do(ctx, f)
		}
		f.meter.Instrument = nvml.Kind
		fmt.Fprintf(a.Err, "wattmark: caution: no monitor is named, and none answers at %s: the GPU's own sensor measures, as "+
			"with --instrument nvml, and may be off by more than ± U. Name a meter with --instrument and --port, or with "+
			"--monitor\n", f.Monitor)
	}
	if f.meter.Instrument != nvml.Kind {
		return f.within(ctx, nil, do)
	}
	if f.meter.Port != "" {
		return cli.Usagef("--instrument nvml has no --port: name the GPU with --gpu")
	}
	cards, err := f.sensors()
	if err != nil {
		return err
	}
	return f.within(ctx, cards, do)
}

// sensors returns the GPUs whose own sensors are the meters, as --instrument nvml is told them.
func (f *RunFlags) sensors() (names []string, err error) {
	var all []*session.FoundGPU
	if f.gpus != "" {
		all, err = findGPUs(f.gpus)
	} else {
		all = make([]*session.FoundGPU, 1)
		all[0], err = session.FindGPU(f.GPU)
	}
	if err != nil {
		return nil, err
	}
	asked := strings.Split(cmp.Or(f.gpus, f.GPU), ",")
	for i, g := range all {
		switch info := g.Info(); {
		case info.Simulated:
			names = append(names, strings.TrimSpace(asked[i]))
		case info.UUID != "":
			names = append(names, info.UUID)
		default: // NVML knows no such GPU, and says so
			names = append(names, f.GPU)
		}
	}
	return names, closeGPUs(all)
}

// within calls do with monitors within this process: of the bench of the flags, or one for
// each GPU whose own sensor is read.
func (f RunFlags) within(ctx context.Context, cards []string, do func(context.Context, RunFlags) error) error {
	var benches []session.BenchFlags
	for _, name := range cards {
		b := f.meter.BenchFlags
		b.GPU = name
		benches = append(benches, b)
	}
	if cards == nil {
		benches = append(benches, f.meter.BenchFlags)
	}
	var addresses []string
	var next func(context.Context) error
	next = func(ctx context.Context) error {
		if len(addresses) == len(benches) {
			f.Monitor = strings.Join(addresses, ",")
			return do(ctx, f)
		}
		chosen := benches[len(addresses)]
		dir, err := chosen.SpoolFolder()
		if err != nil {
			return err
		}
		b, closeBench, err := session.OpenBench(chosen)
		if err != nil {
			return err
		}
		w := session.Within{Bench: b, Spool: dir, Wait: f.Wait}
		err = w.Do(ctx, func(ctx context.Context, address string) error {
			addresses = append(addresses, address)
			return next(ctx)
		})
		return errors.Join(err, closeBench())
	}
	return next(ctx)
}

// listens reports whether something listens at the address of a monitor.
func listens(ctx context.Context, address string) bool {
	const patience = time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", wire.WithPort(address, wire.MonitorPort))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
