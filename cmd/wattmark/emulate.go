package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/pmdface"
	"wattmark/monitor/emulator/poweneticsface"
	"wattmark/monitor/emulator/ps3face"
	"wattmark/monitor/emulator/pty"
	"wattmark/monitor/emulator/rigolface"
	"wattmark/monitor/emulator/textface"
)

// emulateFlags are the flags of emulate.
type emulateFlags struct {
	listen, link, play string
	gpu                string
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

The ds1054z has clamps of 10 mV/A on channels 1 and 3 and probes on channels 2
and 4, at the card's two connectors.

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
		RunE: func(cmd *cobra.Command, args []string) error { return a.emulateAll(cmd.Context(), args, f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "", "TCP address to serve on instead of a pseudo-terminal; one client at a time")
	fl.StringVar(&f.link, "link", "", "make a symbolic link of this name to the pseudo-terminal")
	fl.StringVar(&f.gpu, "gpu", "", "let wattmark run --gpu sim:SOCKET load the card, through this new socket")
	fl.StringVar(&f.play, "play", "", "file of recorded PMD-USB bytes to send (pmd only)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of all that is random")
	fl.BoolVar(&f.imperfect, "imperfect", false, "draw the meter's gain, offset and clock errors")
	fl.DurationVar(&f.period, "period", 2*time.Second, "how long the card stays at each load")
	fl.Float64Var(&f.faults.Drop, "drop", 0, "chance that a byte is lost")
	fl.Float64Var(&f.faults.Duplicate, "duplicate", 0, "chance that a byte is sent twice")
	fl.Float64Var(&f.faults.Corrupt, "corrupt", 0, "chance that a bit is flipped in a byte")
	fl.IntVar(&f.faults.Fragment, "fragment", 0, "cut writes into pieces of at most so many bytes")
	return c
}

// emulated are the kinds that newFace makes.
var emulated = []string{"powersensor3", "pmd", "powenetics", "labjack", "serialtext", "ds1054z"}

// drivers names the driver of an emulated meter where it is called otherwise.
var drivers = map[string]string{"ds1054z": "rigol-ds1000z"}

func driverOf(kind string) string {
	if d, ok := drivers[kind]; ok {
		return d
	}
	return kind
}

// firmware is a protocol face.
type firmware interface {
	Run(context.Context, io.ReadWriteCloser) error
}

func (a *app) emulate(ctx context.Context, kind string, f emulateFlags) error {
	return a.emulateAll(ctx, []string{kind}, f)
}

// emulateAll serves meters of several kinds on one card.
func (a *app) emulateAll(ctx context.Context, kinds []string, f emulateFlags) error {
	b, err := board.New(board.Config{Seed: f.seed})
	if err != nil {
		return err
	}
	live := board.NewLive(b, time.Now())
	each, err := f.split(len(kinds))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if f.gpu != "" {
			return servePlant(ctx, f.gpu, live)
		}
		return alternate(ctx, live, f.period)
	})
	for i, kind := range kinds {
		g.Go(func() error { return a.emulateOne(ctx, kind, b, live, each[i]) })
	}
	return g.Wait()
}

// split gives each of n meters its own address and its own noise.
func (f emulateFlags) split(n int) ([]emulateFlags, error) {
	out := make([]emulateFlags, n)
	for i := range out {
		out[i] = f
		out[i].seed += uint64(i)
		out[i].faults.Seed = out[i].seed
		for name, s := range map[string]*string{"--link": &out[i].link, "--listen": &out[i].listen} {
			if *s == "" || n == 1 {
				continue
			}
			parts := strings.Split(*s, ",")
			if len(parts) != n {
				return nil, withCode(exitUsage, fmt.Errorf("%s: %d of them for %d meters: separate them by commas, one a meter, empty for none", name, len(parts), n))
			}
			*s = parts[i]
		}
	}
	return out, nil
}

// emulateOne serves one meter that measures a board.
func (a *app) emulateOne(ctx context.Context, kind string, b *board.Board, live *board.Live, f emulateFlags) error {
	if kind == "labjack" {
		return a.emulateLabJack(ctx, b, live, f)
	}
	face, err := newFace(kind, b, live.Epoch, f)
	if err != nil {
		return err
	}
	if f.listen != "" {
		return a.serveTCP(ctx, face, kind, f)
	}
	return a.servePTY(ctx, face, kind, f)
}

func newFace(kind string, b *board.Board, epoch time.Time, f emulateFlags) (firmware, error) {
	if f.play != "" && kind != "pmd" {
		return nil, withCode(exitUsage, errors.New("--play: only pmd plays recorded bytes"))
	}
	switch kind {
	case "ds1054z":
		if f.imperfect {
			return nil, withCode(exitUsage, errors.New("--imperfect: the ds1054z has no drawn errors"))
		}
		return rigolface.New(b, rigolface.Config{Seed: f.seed, Now: func() time.Duration { return time.Since(epoch) }})
	case "powenetics":
		return poweneticsface.New(b, pace.Real(epoch), poweneticsface.Config{Seed: f.seed, Draw: f.imperfect})
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
		defer os.Remove(f.link)
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
