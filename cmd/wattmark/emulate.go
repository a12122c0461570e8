package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/dataqface"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/pmd2face"
	"wattmark/monitor/emulator/pmdface"
	"wattmark/monitor/emulator/poweneticsface"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/emulator/pty"
	"wattmark/monitor/emulator/scopeface"
	"wattmark/monitor/emulator/textface"
	"wattmark/monitor/emulator/u2300face"
	"wattmark/monitor/emulator/wt300face"
)

// emulateFlags are the flags of emulate.
type emulateFlags struct {
	listen, link, play string
	gpu, model         string
	seed               uint64
	imperfect          bool
	period             time.Duration
	faults             fault.Faults
}

func (a *app) emulateCmd() *cobra.Command {
	var f emulateFlags
	c := &cobra.Command{
		Use: "emulate KIND...", Short: "Serve a meter in software: " + strings.Join(emulated, ", "), Args: cobra.MinimumNArgs(1),
		ValidArgs: emulated,
		Long: `Serve a meter in software on a pseudo-terminal, or on TCP with --listen, to
wattmark or to other people's programs. An emulated 300 W card alternates
between its loads behind it; --play sends recorded PMD-USB bytes instead.

The oscilloscopes (ds1054z, dsox1102g, …) have clamps of 10 mV/A on channels 1 and
3 and probes on channels 2 and 4, at the card's two connectors; with two channels
at one of them. The u2356a has each rail's voltage, halved, and a clamp of 0.1 V/A
on two inputs, from 101 on, the first connector first. The wt310's element 1
measures the first connector.

Several kinds measure one card. Their --link and --listen are separated by
commas, in the order of the kinds; an empty one is a pseudo-terminal without a
link, or the default.

With --gpu the card does what a simulated GPU is told to do, through a socket:
two machines' worth of wattmark on one, without any hardware (see the example).`,
		Example: `  wattmark emulate powersensor3 --link /tmp/meter
  wattmark emulate powersensor3 --link /tmp/meter --gpu /tmp/gpu &
  wattmark monitor --instrument powersensor3 --port /tmp/meter &
  wattmark run --gpu sim:/tmp/gpu --benchmark memory
  wattmark emulate ds1054z --listen 127.0.0.1:5555
  wattmark emulate powersensor3 pmd --link /tmp/ps3,/tmp/pmd --gpu /tmp/gpu
  wattmark emulate pmd --listen 127.0.0.1:5555 --drop 1e-5`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.emulate(cmd.Context(), args, f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "", "TCP address to serve on instead of a pseudo-terminal; one client at a time")
	fl.StringVar(&f.link, "link", "", "make a symbolic link of this name to the pseudo-terminal")
	fl.StringVar(&f.gpu, "gpu", "", "let wattmark run --gpu sim:SOCKET load the card, through this new socket")
	fl.StringVar(&f.play, "play", "", "file of recorded PMD-USB bytes to send (pmd only)")
	fl.StringVar(&f.model, "model", "", "model of the meter (labjack only): t7 or t8; default t7")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of all that is random")
	fl.BoolVar(&f.imperfect, "imperfect", false, "draw the meter's gain, offset and clock errors")
	fl.DurationVar(&f.period, "period", 2*time.Second, "how long the card stays at each load")
	fl.Float64Var(&f.faults.Drop, "drop", 0, "chance that a byte is lost")
	fl.Float64Var(&f.faults.Duplicate, "duplicate", 0, "chance that a byte is sent twice")
	fl.Float64Var(&f.faults.Corrupt, "corrupt", 0, "chance that a bit is flipped in a byte")
	fl.IntVar(&f.faults.Fragment, "fragment", 0, "cut writes into pieces of at most so many bytes")
	c.AddCommand(a.connectCmd(), a.truthCmd())
	return c
}

// emulated are the kinds that newFace makes.
var emulated = append([]string{
	"powersensor3", "pmd", "pmd2", "powenetics", "labjack", "nidaqmx", "di1100", "di2108", "serialtext", "u2356a", "wt310",
}, scopeNames()...)

// drivers names the driver of an emulated meter where it is called otherwise.
var drivers = map[string]string{"di1100": "dataq", "di2108": "dataq", "u2356a": "keysight-u2300", "wt310": "yokogawa-wt300"}

// driverOf names the driver of an emulated meter.
func driverOf(kind string) string {
	if s, ok := scopes[kind]; ok {
		return s.driver
	}
	if d, ok := drivers[kind]; ok {
		return d
	}
	return kind
}

// firmware is a protocol face.
type firmware interface {
	Run(context.Context, io.ReadWriteCloser) error
}

func newFace(kind string, b *board.Board, epoch time.Time, f emulateFlags) (firmware, error) {
	if s, ok := scopes[kind]; ok {
		return s.face(b, scopeface.Config{Seed: f.seed, Draw: f.imperfect, Now: func() time.Duration { return time.Since(epoch) }})
	}
	switch kind {
	case "u2356a":
		return u2300face.New(b, u2300face.Config{Seed: f.seed, Draw: f.imperfect, Now: func() time.Duration { return time.Since(epoch) }})
	case "wt310":
		return wt300face.New(b, wt300face.Config{Seed: f.seed, Draw: f.imperfect, Now: func() time.Duration { return time.Since(epoch) }})
	case "powenetics":
		return poweneticsface.New(b, pace.Real(epoch), poweneticsface.Config{Seed: f.seed, Draw: f.imperfect})
	case "pmd2":
		return pmd2face.New(b, pace.Real(epoch), pmd2face.Config{Seed: f.seed, Draw: f.imperfect})
	case "di1100":
		return dataqface.New(b, pace.Real(epoch), dataqface.Config{Model: "DI-1100", Seed: f.seed, Draw: f.imperfect})
	case "di2108":
		return dataqface.New(b, pace.Real(epoch), dataqface.Config{Model: "DI-2108", Seed: f.seed, Draw: f.imperfect})
	case "serialtext":
		return textface.New(b, pace.Real(epoch), textface.Config{})
	case "powersensor3":
		return ps3face.New(b, pace.Real(epoch), ps3face.Config{Seed: f.seed, Draw: f.imperfect})
	case "pmd":
		cfg := pmdface.Config{Seed: f.seed, Draw: f.imperfect}
		if f.play != "" {
			if _, err := os.Stat(f.play); err != nil {
				return nil, err
			}
			cfg.Play = func() (io.ReadCloser, error) { return os.Open(f.play) }
		}
		return pmdface.New(b, pace.Real(epoch), cfg)
	}
	return nil, withCode(exitUsage, fmt.Errorf("emulate %q: want one of %s", kind, strings.Join(emulated, ", ")))
}

// alternate walks the card through its loads until ctx ends.
func alternate(ctx context.Context, live *board.Live, period time.Duration) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	loads := []board.Load{board.ActiveIdle, board.Compute, board.ActiveIdle, board.Memory, board.ActiveIdle, board.Half}
	for i := 0; ; i++ {
		if _, err := live.SetLoad(time.Now(), loads[i%len(loads)]); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (a *app) servePTY(ctx context.Context, face firmware, kind string, f emulateFlags) error {
	port, err := pty.OpenPort()
	if err != nil {
		return err
	}
	defer port.Close()
	path := port.Path()
	if f.link != "" {
		if err := os.Symlink(path, f.link); err != nil {
			return fmt.Errorf("--link: %w: remove it first or choose another name", err)
		}
		defer func() {
			if to, err := os.Readlink(f.link); err == nil && to == port.Path() { // else another's by now
				_ = os.Remove(f.link)
			}
		}()
		if path, err = filepath.Abs(f.link); err != nil { // drivers want a path that looks like one
			return err
		}
	}
	fmt.Fprintf(a.out, "%s on %s\nIn another terminal: wattmark monitor --instrument %s --port %s\n", kind, path, driverOf(kind), path)
	return face.Run(ctx, fault.New(port, f.faults))
}

// serveTCP serves one client after another.
func (a *app) serveTCP(ctx context.Context, face firmware, kind string, f emulateFlags) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("emulate: %w: choose another --listen", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	fmt.Fprintf(a.out, "%s on tcp:%s\nIn another terminal: wattmark monitor --instrument %s --port tcp:%s\n", kind, l.Addr(), driverOf(kind), l.Addr())
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := face.Run(ctx, fault.New(c, f.faults)); err != nil {
			fmt.Fprintln(a.err, "wattmark: client gone:", err)
		}
	}
}
