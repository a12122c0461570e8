package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	dataqface "github.com/wattmark/wattmark/monitor/emulator/dataq"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	keysightface "github.com/wattmark/wattmark/monitor/emulator/keysight"
	labjackface "github.com/wattmark/wattmark/monitor/emulator/labjack"
	niface "github.com/wattmark/wattmark/monitor/emulator/nidaqmx"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmdface "github.com/wattmark/wattmark/monitor/emulator/pmd"
	pmd2face "github.com/wattmark/wattmark/monitor/emulator/pmd2"
	poweneticsface "github.com/wattmark/wattmark/monitor/emulator/powenetics"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	quarchface "github.com/wattmark/wattmark/monitor/emulator/quarch"
	rigolface "github.com/wattmark/wattmark/monitor/emulator/rigol"
	rsface "github.com/wattmark/wattmark/monitor/emulator/rohdeschwarz"
	scopeface "github.com/wattmark/wattmark/monitor/emulator/scope"
	textface "github.com/wattmark/wattmark/monitor/emulator/serialtext"
	siglentface "github.com/wattmark/wattmark/monitor/emulator/siglent"
	tekface "github.com/wattmark/wattmark/monitor/emulator/tektronix"
	u2300face "github.com/wattmark/wattmark/monitor/emulator/u2300"
	wt300face "github.com/wattmark/wattmark/monitor/emulator/wt300"
	"golang.org/x/sync/errgroup"
)

// EmulateFlags are the flags of emulate. Listen and link hold one value for each meter,
// separated by commas, until split. Period is the time at each load.
type EmulateFlags struct {
	Listen, link, play string
	gpu, model         string
	Seed               uint64
	imperfect          bool
	Period             time.Duration
	faults             fault.Faults
}

// emulateCmd returns emulate, which serves until its context ends, and its subcommands for a running emulator.
func emulateCmd(a *cli.App) *cobra.Command {
	var f EmulateFlags
	c := &cobra.Command{
		Use: "emulate KIND...", Short: "Serve a meter in software", Long: "Kinds: " + strings.Join(emulated(), ", ") + ".",
		Args:      cobra.MinimumNArgs(1),
		ValidArgs: emulated(),
		RunE:      func(cmd *cobra.Command, args []string) error { return Emulate(cmd.Context(), a, args, f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.Listen, "listen", "", "TCP address to serve on instead of a pseudo-terminal; one client at a time")
	fl.StringVar(&f.link, "link", "", "make a symbolic link of this name to the pseudo-terminal")
	fl.StringVar(&f.gpu, "gpu", "", "GPU that can load the card, as wattmark run --gpu names it: sim: and a new socket")
	fl.StringVar(&f.play, "play", "", "file of recorded PMD-USB bytes to send (pmd only)")
	fl.StringVar(&f.model, "meter-model", "", "model of the meter (labjack only): t7 or t8; default t7")
	fl.Uint64Var(&f.Seed, "seed", 1, "seed of all that is random")
	fl.BoolVar(&f.imperfect, "imperfect", false, "draw the meter's gain, offset and clock errors")
	fl.DurationVar(&f.Period, "dwell", 2*time.Second, "how long the card stays at each load")
	fl.Float64Var(&f.faults.Drop, "drop", 0, "chance that a byte is lost")
	fl.Float64Var(&f.faults.Duplicate, "duplicate", 0, "chance that a byte is sent twice")
	fl.Float64Var(&f.faults.Corrupt, "corrupt", 0, "chance that a bit is flipped in a byte")
	fl.Int64Var(&f.faults.After, "after", 0, "bytes that pass before any is spoilt by chance, so that the meter can be opened")
	fl.IntVar(&f.faults.Fragment, "fragment", 0, "cut writes into pieces of at most so many bytes")
	c.AddCommand(connectCmd(), truthCmd(a))
	return c
}

// Firmware speaks a meter's protocol on a line. Run blocks until ctx ends or the line
// fails.
type Firmware interface {
	Run(context.Context, io.ReadWriteCloser) error
}

// emulator is a kind of meter that can be emulated. face makes its emulation, nil for the
// kinds that need more than one line: labjack and nidaqmx.
type emulator struct {
	kind, driver string
	face         func(source) (Firmware, error)
}

// source is what an emulation measures and how: the board, its time in two forms, and the flags.
type source struct {
	*board.Board
	pace pace.Pace
	now  func() time.Duration
	EmulateFlags
}

// scope returns the configuration that the emulated oscilloscopes share.
func (s source) scope() scopeface.Config {
	return scopeface.Config{Seed: s.Seed, Draw: s.imperfect, Now: s.now}
}

// emulators are the kinds in the order of the help, the oscilloscopes last.
var emulators = []emulator{
	{"powersensor3", "powersensor3", func(s source) (Firmware, error) {
		return ps3face.New(s.Board, s.pace, ps3face.Config{Seed: s.Seed, Draw: s.imperfect})
	}},
	{"pmd", "pmd", newPMD},
	{"pmd2", "pmd2", func(s source) (Firmware, error) {
		return pmd2face.New(s.Board, s.pace, pmd2face.Config{Seed: s.Seed, Draw: s.imperfect})
	}},
	{"wireview-pro2", "wireview-pro2", func(s source) (Firmware, error) {
		return pmd2face.New(s.Board, s.pace, pmd2face.Config{Seed: s.Seed, Draw: s.imperfect, WireView: true})
	}},
	{"powenetics", "powenetics", func(s source) (Firmware, error) {
		return poweneticsface.New(s.Board, s.pace, poweneticsface.Config{Seed: s.Seed, Draw: s.imperfect})
	}},
	{"labjack", "labjack", nil},
	{"nidaqmx", "nidaqmx", nil},
	{"quarch", "quarch", func(s source) (Firmware, error) {
		return quarchface.New(s.Board, s.pace, quarchface.Config{Seed: s.Seed, Draw: s.imperfect})
	}},
	{"di1100", "dataq", newDataq("DI-1100")},
	{"di2108", "dataq", newDataq("DI-2108")},
	{"serialtext", "serialtext", func(s source) (Firmware, error) {
		return textface.New(s.Board, s.pace, textface.Config{})
	}},
	{"u2356a", "keysight-u2300", func(s source) (Firmware, error) {
		return u2300face.New(s.Board, u2300face.Config{Seed: s.Seed, Draw: s.imperfect, Now: s.now})
	}},
	{"wt310", "yokogawa-wt300", func(s source) (Firmware, error) {
		return wt300face.New(s.Board, wt300face.Config{Seed: s.Seed, Draw: s.imperfect, Now: s.now})
	}},
	{"wt310-wall", "yokogawa-wt300", func(s source) (Firmware, error) {
		return wt300face.New(s.Board, wt300face.Config{
			Seed: s.Seed, Draw: s.imperfect, Now: s.now,
			Wall: func(card measure.Watt, _, _ time.Duration) measure.Watt { return (RestOfMachine + card) / Supply },
		})
	}},
	{"dho804", "rigol-dho", newScope(rigolface.New, rigolface.DHO)},
	{"ds1054z", "rigol-ds1000z", newScope(rigolface.New, rigolface.DS1000Z)},
	{"dsox1102g", "keysight-infiniivision", newKeysight(keysightface.DSOX1102G)},
	{"edux1002g", "keysight-infiniivision", newKeysight(keysightface.EDUX1002G)},
	{"mdo3014", "tektronix", newScope(tekface.New, tekface.MDO3000)},
	{"mso44", "tektronix", newScope(tekface.New, tekface.MSO4)},
	{"mso5074", "rigol-mso5000", newScope(rigolface.New, rigolface.MSO5000)},
	{"rtb2004", "rohde-schwarz-rtb2000", newScope(rsface.New, rsface.RTB2004)},
	{"sds2104x-hd", "siglent-e11", newScope(siglentface.New, siglentface.SDS2000XHD)},
	{"sds2104x-plus", "siglent-e11", newScope(siglentface.New, siglentface.SDS2000XPlus)},
}

// RestOfMachine is the power that the emulated machine of wt310-wall draws from its supply beside the card.
const RestOfMachine measure.Watt = 80

// Supply is the efficiency of that supply: output over input power.
const Supply = 0.9

// newScope adapts a maker's constructor for one family of oscilloscopes.
func newScope[F Firmware, M any](maker func(*board.Board, M, scopeface.Config) (F, error), family M,
) func(source) (Firmware, error) {
	return func(s source) (Firmware, error) { return maker(s.Board, family, s.scope()) }
}

// newKeysight adapts the oscilloscopes of Keysight, and newDataq the data loggers of DATAQ, for one model.
func newKeysight(m keysightface.Model) func(source) (Firmware, error) {
	return func(s source) (Firmware, error) {
		return keysightface.New(s.Board, m, keysightface.Config{Config: s.scope()})
	}
}

func newDataq(model string) func(source) (Firmware, error) {
	return func(s source) (Firmware, error) {
		return dataqface.New(s.Board, s.pace, dataqface.Config{Model: model, Seed: s.Seed, Draw: s.imperfect})
	}
}

// newPMD emulates a PMD-USB; with --play it sends the bytes of a file.
func newPMD(s source) (Firmware, error) {
	cfg := pmdface.Config{Seed: s.Seed, Draw: s.imperfect}
	if s.play != "" {
		if _, err := os.Stat(s.play); err != nil {
			return nil, err
		}
		cfg.Play = func() (io.ReadCloser, error) { return os.Open(s.play) }
	}
	return pmdface.New(s.Board, s.pace, cfg)
}

func emulated() (names []string) {
	return lists.Map(emulators, func(e emulator) string { return e.kind })
}

// emulatorOf returns the emulator of a kind, or the first one of a driver; one without a face for unknown kinds.
func emulatorOf(kind string) emulator {
	i := slices.IndexFunc(emulators, func(e emulator) bool { return e.kind == kind })
	if i < 0 {
		i = slices.IndexFunc(emulators, func(e emulator) bool { return e.driver == kind })
	}
	if i >= 0 {
		return emulators[i]
	}
	return emulator{kind: kind, driver: kind}
}

// DriverOf returns the name of the driver for an emulated meter.
func DriverOf(kind string) string { return emulatorOf(kind).driver }

// NewFace returns the emulation of a meter that reads board b; epoch is its time zero. It
// fails with ExitUsage for kinds that it does not know, and for labjack and nidaqmx, which
// need more than one line.
func NewFace(kind string, b *board.Board, epoch time.Time, f EmulateFlags) (Firmware, error) {
	if e := emulatorOf(kind); e.face != nil {
		return e.face(source{b, pace.Real(epoch), func() time.Duration { return time.Since(epoch) }, f})
	}
	return nil, unknownKind(kind)
}

func unknownKind(kind string) error {
	return cli.Usagef("emulate %q: want one of %s", kind, strings.Join(emulated(), ", "))
}

// servePTY serves a meter on a pseudo-terminal until ctx ends. With --link it makes a
// symbolic link to it, and removes the link unless it points elsewhere by then.
func servePTY(ctx context.Context, a *cli.App, face Firmware, kind string, f EmulateFlags) error {
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
	fmt.Fprintf(a.Out, "%s on %s\nIn another terminal: wattmark monitor --instrument %s --port %s\n", kind, path,
		DriverOf(kind), path)
	return face.Run(ctx, fault.New(port, f.faults))
}

// serveTCP serves one client after another until ctx ends. A client's failure is printed
// and does not end the service.
func serveTCP(ctx context.Context, a *cli.App, face Firmware, kind string, f EmulateFlags) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.Listen)
	if err != nil {
		return fmt.Errorf("emulate: %w: choose another --listen", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	fmt.Fprintf(a.Out, "%s on tcp:%s\nIn another terminal: wattmark monitor --instrument %s --port tcp:%s\n", kind,
		l.Addr(), DriverOf(kind), l.Addr())
	var clients sync.WaitGroup // of QIS, which serves several at a time
	defer clients.Wait()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, many := face.(*quarchface.Face); many {
			clients.Go(func() { _ = face.Run(ctx, fault.New(c, f.faults)) })
		} else if err := face.Run(ctx, fault.New(c, f.faults)); err != nil {
			fmt.Fprintln(a.Err, "wattmark: client gone:", err)
		}
	}
}

// connectCmd returns emulate connect, which changes the inputs of a running emulator.
func connectCmd() *cobra.Command {
	var socket, current, voltage string
	var rails []string
	c := &cobra.Command{
		Use:       "connect nothing|source|card",
		Short:     "Put nothing, a calibrator or the card on an emulated meter's inputs",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"nothing", "source", "card"},
		RunE: func(_ *cobra.Command, args []string) error {
			q := session.SourceChange{Rails: rails, Card: args[0] == "card"}
			var err1, err2 error
			q.Amperes, err1 = ParseQuantity(current, measure.UnitAmpere)
			q.Volts, err2 = ParseQuantity(voltage, measure.UnitVolt)
			if err := errors.Join(err1, err2); err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			if (args[0] == "source") != (q.Amperes != 0 || q.Volts != 0) {
				return cli.Usagef("--current and --voltage say what a source holds; nothing and card take none")
			}
			p, err := sim.Dial(strings.TrimPrefix(socket, sim.Prefix))
			if err != nil {
				return err
			}
			defer p.Close()
			return p.Call("Connect", q, nil)
		},
	}
	fl := c.Flags()
	fl.StringVar(&socket, "gpu", "", "GPU of the emulator, sim: and its socket")
	fl.StringSliceVar(&rails, "rail", nil, "rail of the card (repeatable; default: all)")
	fl.StringVar(&current, "current", "0A", "current that the source drives")
	fl.StringVar(&voltage, "voltage", "0V", "voltage that it holds")
	_ = c.MarkFlagRequired("gpu")
	return c
}

// truthCmd returns emulate truth, which prints a task's results beside the energy in J that
// the emulated card drew from the first kernel's start to the last one's end. It fails where
// the bench names a rail that the card does not have, or where the emulator no longer
// remembers the time.
func truthCmd(a *cli.App) *cobra.Command {
	var socket string
	c := cli.Command("truth TASK", "Show a task beside what the emulated card really drew", cli.OneTask,
		func(ctx context.Context, args []string) error {
			db, t, err := a.OpenTask(ctx, args[0])
			if err != nil {
				return err
			}
			defer db.Close()
			ks, err := db.Kernels(ctx, t.ID)
			if err != nil {
				return err
			}
			if len(ks) == 0 || len(t.Results) == 0 {
				return fmt.Errorf("task %d has no kernels or no result to compare", t.ID)
			}
			p, err := sim.Dial(strings.TrimPrefix(socket, sim.Prefix))
			if err != nil {
				return err
			}
			defer p.Close()
			q := session.RailSpan{TimeSpan: sim.TimeSpan{From: ks[0].Start, To: ks[len(ks)-1].End}}
			for _, r := range t.Setup.Rails {
				if !slices.ContainsFunc(board.DefaultRails(), func(x board.RailConfig) bool { return x.Name == r.Name }) {
					return fmt.Errorf("the emulated card has no rail %s: name the bench's rails as the card's", r.Name)
				}
				q.Rails = append(q.Rails, r.Name)
			}
			var joules float64
			if err := p.Call("Energy", q, &joules); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]any{"truth_j": joules, "results": t.Results})
			}
			fmt.Fprintf(a.Out, "Task %d: the card drew %.3f J\n", t.ID, joules)
			for _, r := range t.Results {
				fmt.Fprintf(a.Out, "  result %d  %s: error %s, %s\n", r.Number, out.Energy(r.Estimate),
					measure.FormatPercent(100*(float64(r.Energy)/joules-1)), report.InsideText(r.Estimate, joules))
			}
			return nil
		})
	c.Flags().StringVar(&socket, "gpu", "", "GPU of the emulator, sim: and its socket")
	_ = c.MarkFlagRequired("gpu")
	return a.JSONFlag(c)
}

// emulateLabJack serves a T7 or a T8 on two TCP ports, registers and stream, until ctx
// ends.
func emulateLabJack(ctx context.Context, a *cli.App, b *board.Board, live *board.Live, f EmulateFlags) error {
	if f.link != "" {
		return cli.Usagef("a LabJack is emulated on TCP and from the board: no --link")
	}
	product, ok := map[string]float32{"": 7, "t7": 7, "t8": 8}[strings.ToLower(f.model)]
	if !ok {
		return cli.Usagef("--meter-model %s: want t7 or t8", f.model)
	}
	face, err := labjackface.New(b, pace.Real(live.Epoch), labjackface.Config{
		Seed: f.Seed, Draw: f.imperfect, Product: product,
		// Faults apply to both connections.
		Wrap: func(rw io.ReadWriteCloser) io.ReadWriteCloser { return fault.New(rw, f.faults) },
	})
	if err != nil {
		return err
	}
	// Ports below 1024 need privileges. The stream's port is 200 above, as the device's 702 is to 502.
	registers, stream, err := ListenPair(ctx, cmp.Or(f.Listen, "127.0.0.1:5502"))
	if err != nil {
		return fmt.Errorf("emulate: %w: choose another --listen", err)
	}
	fmt.Fprintf(a.Out, "labjack on tcp:%s, its stream on %s\nIn another terminal: wattmark monitor --instrument "+
		"labjack --port tcp:%s\n", registers.Addr(), stream.Addr(), registers.Addr())
	return face.Serve(ctx, registers, stream)
}

// ListenPair listens on a port and on the one 200 above. With port 0 the first is chosen by
// the system, and the second may be taken: call again.
func ListenPair(ctx context.Context, address string) (registers, stream net.Listener, err error) {
	var c net.ListenConfig
	if registers, err = c.Listen(ctx, "tcp", address); err != nil {
		return nil, nil, err
	}
	host, port, err := net.SplitHostPort(registers.Addr().String())
	if err == nil {
		n, _ := strconv.Atoi(port)
		stream, err = c.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(n+200)))
	}
	if err != nil {
		_ = registers.Close()
		return nil, nil, err
	}
	return registers, stream, nil
}

// emulateNI serves NI's gRPC Device Server with a USB-6259 to any number of clients. The
// faults of a serial line do not apply.
func emulateNI(ctx context.Context, a *cli.App, b *board.Board, live *board.Live, f EmulateFlags) error {
	if d := f.faults; f.link != "" || d.Drop+d.Duplicate+d.Corrupt > 0 || d.Fragment > 0 || d.After > 0 {
		return cli.Usagef("nidaqmx is gRPC on TCP, from the board: no --link, and no spoilt bytes")
	}
	face, err := niface.New(b, pace.Real(live.Epoch), niface.Config{Seed: f.Seed, Draw: f.imperfect})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(f.Listen, "127.0.0.1:31763"))
	if err != nil {
		return fmt.Errorf("emulate: %w: choose another --listen", err)
	}
	fmt.Fprintf(a.Out, "nidaqmx on tcp:%s\nIn another terminal: wattmark monitor --instrument nidaqmx --port tcp:%s\n",
		l.Addr(), l.Addr())
	return face.Serve(ctx, l)
}

// Emulate serves meters of several kinds that measure one card, until ctx ends or one
// fails. With --gpu a simulated GPU drives the card's load through a socket.
func Emulate(ctx context.Context, a *cli.App, kinds []string, f EmulateFlags) error {
	f.gpu = strings.TrimPrefix(f.gpu, sim.Prefix)
	kinds = lists.Map(kinds, func(kind string) string { return emulatorOf(kind).kind })
	for _, kind := range kinds {
		if !slices.Contains(emulated(), kind) {
			return unknownKind(kind)
		}
	}
	each, err := f.split(kinds)
	if err != nil {
		return err
	}
	b, err := board.New(board.Config{Seed: f.Seed})
	if err != nil {
		return err
	}
	// All meters read one board, on one time axis.
	live := board.NewLive(b, time.Now())
	if f.gpu != "" {
		fmt.Fprintf(a.Out, "simulated GPU %s: wattmark run --gpu %s%s\n", sim.UUID(sim.SocketSeed(f.gpu)),
			sim.Prefix, f.gpu)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if f.gpu != "" {
			return session.ServePlant(ctx, f.gpu, live)
		}
		// Without a GPU the load changes every period, idle between the others.
		loads := []load.State{load.ActiveIdle, load.Compute, load.ActiveIdle, load.Memory, load.ActiveIdle, load.Half}
		i := 0
		for range backoff.Rounds(ctx.Done(), f.Period) {
			if _, err := live.SetLoad(time.Now(), loads[i%len(loads)]); err != nil {
				return err
			}
			i++
		}
		return nil
	})
	for i, kind := range kinds {
		g.Go(func() error { return emulateOne(ctx, a, kind, b, live, each[i]) })
	}
	return g.Wait()
}

// split returns the flags of each meter: its own address and link, a seed of its own (so
// that noise differs), and the options of its kind alone. It fails with ExitUsage where the
// number of addresses is not that of the kinds.
func (f EmulateFlags) split(kinds []string) ([]EmulateFlags, error) {
	if f.model != "" && !slices.Contains(kinds, "labjack") {
		return nil, cli.Usagef("--meter-model: only the labjack comes in more than one")
	}
	if f.play != "" && !slices.Contains(kinds, "pmd") {
		return nil, cli.Usagef("--play: only pmd plays recorded bytes")
	}
	out := make([]EmulateFlags, len(kinds))
	for i, kind := range kinds {
		out[i] = f
		// Different seeds give each meter noise and faults of its own.
		out[i].Seed += uint64(i)
		out[i].faults.Seed = out[i].Seed
		if kind != "labjack" {
			out[i].model = ""
		}
		if kind != "pmd" {
			out[i].play = ""
		}
		for name, s := range map[string]*string{"--link": &out[i].link, "--listen": &out[i].Listen} {
			if *s == "" || len(kinds) == 1 {
				continue
			}
			parts := strings.Split(*s, ",")
			if len(parts) != len(kinds) {
				return nil, cli.Usagef("%s: %d of them for %d meters: separate them by "+
					"commas, one a meter, empty for none", name, len(parts), len(kinds))
			}
			*s = parts[i]
		}
	}
	return out, nil
}

// emulateOne serves one meter that measures board b.
func emulateOne(ctx context.Context, a *cli.App, kind string, b *board.Board, live *board.Live, f EmulateFlags) error {
	switch kind {
	case "labjack":
		return emulateLabJack(ctx, a, b, live, f)
	case "nidaqmx":
		return emulateNI(ctx, a, b, live, f)
	case "quarch":
		if f.link != "" {
			return cli.Usagef("QIS is emulated on TCP: no --link")
		}
		f.Listen = cmp.Or(f.Listen, "127.0.0.1:9722")
	}
	face, err := NewFace(kind, b, live.Epoch, f)
	if err != nil {
		return err
	}
	if f.Listen != "" {
		return serveTCP(ctx, a, face, kind, f)
	}
	return servePTY(ctx, a, face, kind, f)
}
