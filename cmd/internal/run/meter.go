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

// chosen reports whether the flags name a bench that this process reads.
func (f *meterFlags) chosen() bool { return f.File != "" || f.Instrument != "" }

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
	switch {
	case !f.meter.chosen() && (f.meter.Port != "" || f.meter.Records != ""):
		return cli.Usagef("--port and --calibration go with --instrument or --bench")
	case !f.meter.chosen():
		return nil
	case cli.Given(fl, "monitor"):
		return cli.Usagef("--monitor names a meter, and so does --instrument or --bench: keep one of them")
	case f.meter.Instrument == nvml.Kind && f.meter.Port != "":
		return cli.Usagef("--instrument nvml has no --port: name the GPU with --gpu")
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
	chosen := f.meter.chosen()
	switch {
	case !chosen && (f.meter.named || listens(ctx, f.Monitor)):
		return do(ctx, f)
	case !chosen:
		f.meter.Instrument = nvml.Kind
	case f.meter.Instrument != nvml.Kind:
		return f.within(ctx, nil, do)
	}
	cards, err := f.sensors()
	if err != nil {
		return err
	}
	if !chosen {
		fmt.Fprintf(a.Err, "wattmark: caution: the GPU's own sensor measures; it may be off beyond ± U:\n"+
			"  no monitor is named, and none answers at %s. Name a meter with\n"+
			"  --instrument and --port, or with --monitor; --instrument nvml for this one\n", f.Monitor)
	}
	return f.within(ctx, cards, do)
}

// ownSensor is a GPU whose own sensor is a meter. selector finds it for --instrument nvml; uuid is
// empty where it is not known before the sensor is open.
type ownSensor struct{ selector, uuid string }

// sensors returns the GPUs whose own sensors are the meters.
func (f *RunFlags) sensors() (list []ownSensor, err error) {
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
		s := ownSensor{uuid: g.Info().UUID}
		if s.selector = s.uuid; s.uuid == "" || g.Info().Simulated {
			s.selector = strings.TrimSpace(asked[i])
		}
		list = append(list, s)
	}
	return list, closeGPUs(all)
}

// within calls do with a monitor within this process: of the bench of the flags, or one for
// each of the sensors.
func (f RunFlags) within(ctx context.Context, sensors []ownSensor, do func(context.Context, RunFlags) error) error {
	gpu := ""
	if len(sensors) > 0 {
		f.meter.GPU, gpu, sensors = sensors[0].selector, sensors[0].uuid, sensors[1:]
	}
	b, closeBench, err := session.OpenBench(f.meter.BenchFlags)
	if err != nil {
		return err
	}
	b.GPU = cmp.Or(b.GPU, gpu)
	w := session.Within{Bench: b, Wait: f.Wait}
	if w.Spool, err = f.meter.SpoolFolder(); err == nil {
		err = w.Do(ctx, func(ctx context.Context, address string) error {
			if len(sensors) == 0 {
				f.Monitor = address
				return do(ctx, f)
			}
			return f.within(ctx, sensors, func(ctx context.Context, others RunFlags) error {
				others.Monitor = address + "," + others.Monitor
				return do(ctx, others)
			})
		})
	}
	return errors.Join(err, closeBench())
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
