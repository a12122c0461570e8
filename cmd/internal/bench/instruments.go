// Package bench has the commands around a meter.
//
//	instruments   list ports and GPUs; probe shows readings, check judges a bench
//	calibrate     zero, gain, shunt, import of a certificate, note → dated records
//	recalculate   results of stored tasks under other records
//	powersensor3  the configuration stored in the device
//	emulate       a meter in software on a pseudo-terminal or TCP
//	replay        a recording of a PMD-USB through the driver into a task
//
// A bench is an instrument with the setup of its channels and rails (session.OpenBench).
// The calibration commands measure through a monitor (calRig), so that they see the counts
// and the scale that a task would see.
package bench

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu/amdsmi"
	hostnvml "github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/checkup"
	"github.com/wattmark/wattmark/monitor/discover"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/monitor/scpi"
	"github.com/wattmark/wattmark/monitor/transport"
)

// instrumentsCmd returns instruments, which opens no port unless --ask names it; its subcommands open one.
func instrumentsCmd(a *cli.App) *cobra.Command {
	var kinds bool
	var ask []string
	c := cli.Command("instruments", "Find the meters of this machine, check what they read", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if kinds {
				return listKinds(a)
			}
			return listInstruments(ctx, a, ask)
		})
	c.Flags().BoolVar(&kinds, "kinds", false, "list the kinds of instrument that can be driven, instead")
	c.Flags().StringSliceVar(&ask, "ask", nil,
		"ask who is at these addresses, and list only that: /dev/ttyACM0, tcp:HOST:PORT, usbtmc:/dev/usbtmc0")
	a.JSONFlag(c)
	c.AddCommand(
		meterCmd(a, "probe", "Show what a meter reads now, in volts, amperes and watts", 0, probe),
		meterCmd(a, "check", "Check a bench: noise, rate, losses, polarity, swapped rails", checkFor, check))
	return c
}

// InstrumentList is the JSON of instruments.
type InstrumentList struct {
	Ports []discover.Port `json:"ports"`
	GPUs  []listedGPU     `json:"gpus"`
	Asked []askedPort     `json:"asked,omitempty"`
}

// listedGPU is a GPU whose own power sensor can be read, by the instrument Kind.
type listedGPU struct {
	Kind   string `json:"kind"`
	Index  int    `json:"index"`
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Driver string `json:"driver"`
}

// listInstruments prints the ports and GPUs of this machine. It opens no port, except those
// of ask, which it opens one after another; each may take up to askTime or greetTime for
// every kind tried.
func listInstruments(ctx context.Context, a *cli.App, ask []string) error {
	ports, err := discover.Ports(os.DirFS("/"))
	if err != nil {
		return err
	}
	l := InstrumentList{Ports: append([]discover.Port{}, ports...), GPUs: listGPUs()}
	l.Asked = lists.Map(ask, func(address string) askedPort { return AskIdentity(ctx, address, ports) })
	if len(ask) > 0 && !slices.ContainsFunc(l.Asked, func(p askedPort) bool { return p.Trouble == "" }) {
		err = errors.New("nothing that was asked answered")
	}
	if a.JSON {
		return errors.Join(a.PrintJSON(l), err)
	}
	if len(l.Ports)+len(l.GPUs)+len(l.Asked) == 0 {
		fmt.Fprintln(a.Out, `No serial port, USB test instrument or GPU here. Plug the meter in, or name a network
instrument with --ask tcp:HOST:PORT. Without any hardware: wattmark demo, or
wattmark emulate powersensor3 in another terminal.`)
		return nil
	}
	t := out.NewTable(a.Out, "address", "what it is", "try --instrument", "")
	// A list with --ask shows the addresses asked, and no others.
	if len(ask) > 0 {
		l.Ports, l.GPUs = nil, nil
	}
	for _, p := range l.Ports {
		kinds := strings.Join(p.Kinds, ", ")
		if len(p.Kinds) > 1 {
			kinds = "one of " + kinds + " (--ask)"
		}
		t.AppendRow(out.Row{p.Address, out.JoinNonEmpty(" ", p.Product, p.USB), kinds, p.Trouble})
	}
	for _, g := range l.GPUs {
		t.AppendRow(out.Row{fmt.Sprintf("GPU %d", g.Index), g.Name, g.Kind, "its own sensor: not the truth"})
	}
	for _, p := range l.Asked {
		who := cmp.Or(out.JoinNonEmpty(" ", p.Maker, p.Model, p.Serial, p.Firmware), "no answer")
		t.AppendRow(out.Row{p.Address, who, strings.Join(p.Kinds, ", "), ""})
	}
	t.Render()
	a.Hintf("\nWhat can be driven: wattmark instruments --kinds\n")
	for _, p := range l.Asked {
		if p.Trouble != "" {
			fmt.Fprintf(a.Out, "\n%s: %s\n", p.Address, p.Trouble)
		}
	}
	return err
}

// listGPUs returns the GPUs that NVML opens by index 0, 1, …, and those that AMD SMI lists; none without a driver.
func listGPUs() []listedGPU {
	out := []listedGPU{}
	for i := range 64 {
		d, err := hostnvml.Open(fmt.Sprint(i))
		if err != nil {
			break
		}
		info := d.Info()
		out = append(out, listedGPU{nvml.Kind, i, info.Name, info.UUID, info.Driver})
		_ = d.Close()
	}
	cards, _ := amdsmi.List() // an error: none that could be read
	for i, c := range cards {
		out = append(out, listedGPU{nvml.AMD, i, c.Name, c.UUID, c.Driver})
	}
	return out
}

// listKinds prints the instruments that have a driver.
func listKinds(a *cli.App) error {
	type kind struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
		Address string `json:"address"`
	}
	list := lists.Map(registry.Kinds(), func(k registry.Kind) kind { return kind{k.Name, k.Summary, k.Address} })
	return a.Print(map[string]any{"kinds": list}, func(w io.Writer) {
		out.Table(w, out.Row{"kind", "what", "address"}, list, func(k kind) out.Row {
			return out.Row{k.Name, k.Summary, k.Address}
		})
	})
}

// meterFlags choose an instrument and the length of a measurement (0: until Ctrl-C).
type meterFlags struct {
	session.BenchFlags
	length time.Duration
}

// meterCmd returns a command that measures with an instrument for the time of --for, by default length. It fails with
// ExitUsage unless exactly one of bench file and instrument is given.
func meterCmd(a *cli.App, use, short string, length time.Duration,
	measure func(context.Context, *cli.App, meterFlags) error,
) *cobra.Command {
	var f meterFlags
	c := cli.Command(use, short, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		switch err := f.Check(); {
		case err != nil:
			return err
		case f.Nominal && f.Records != "":
			return cli.Usagef("--nominal leaves the records out that --calibration names: give one of them")
		case f.length < 0:
			return cli.Usagef("--for %v: must be positive", f.length)
		}
		return measure(ctx, a, f)
	})
	fl := c.Flags()
	f.AddTo(fl)
	fl.StringVar(&f.GPU, "gpu", "", "GPU of --instrument nvml by index, UUID or PCI bus id")
	fl.BoolVar(&f.Nominal, "nominal", false,
		"leave the calibration records out: the scale of the instrument and the bench file alone")
	fl.DurationVar(&f.length, "for", length, "how long to measure")
	return a.JSONFlag(c)
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	calibrate := &cobra.Command{Use: "calibrate", Short: "Calibrate the meter's channels, and show their calibration"}
	calibrate.AddCommand(calibrateZeroCmd(a), calibrateGainCmd(a), calibrateImportCmd(a), calibrateShuntCmd(a),
		calibrateNoteCmd(a), calibrateShowCmd(a))
	powersensor3 := &cobra.Command{Use: "powersensor3", Short: "Look after a PowerSensor3"}
	powersensor3.AddCommand(psConfigCmd(a))
	return cli.In(cli.Bench, help, instrumentsCmd(a), calibrate, recalculateCmd(a), powersensor3, emulateCmd(a),
		replayCmd(a))
}

// askedPort is an address with the identity that the device there reported, or with the
// trouble met. Kinds are the drivers that accept such a device.
type askedPort struct {
	Address  string   `json:"address"`
	Maker    string   `json:"maker,omitempty"`
	Model    string   `json:"model,omitempty"`
	Serial   string   `json:"serial,omitempty"`
	Firmware string   `json:"firmware,omitempty"`
	Kinds    []string `json:"kinds,omitempty"`
	Trouble  string   `json:"trouble,omitempty"`
}

const (
	// askTime bounds the answer to *IDN?: a busy oscilloscope needs about a second.
	askTime = 2 * time.Second
	// greetTime bounds a driver's search for its meter on a serial line.
	greetTime = 5 * time.Second
)

// greeted are the kinds that identify themselves otherwise than by *IDN?. The order
// matters: the question for one kind must mean nothing to the kinds behind it.
var greeted = []string{"powersensor3", "pmd2", "wireview-pro2", "pmd", "dataq"}

// AskIdentity identifies the device at an address: on a serial line by the greetings of the
// kinds that its USB number fits (of all kinds where none does), and then, as on any other
// address, by *IDN?. Where no kind fits it listens first for lines that come unasked. A failure is reported in
// Trouble. It blocks up to greetTime for each kind tried, plus askTime twice.
func AskIdentity(ctx context.Context, address string, ports []discover.Port) askedPort {
	a, err := transport.ParseAddress(address)
	if err != nil || a.Scheme != "serial" {
		p := askSCPI(ctx, address)
		if p.Trouble != "" && a.Scheme == "tcp" { // QIS knows no *IDN?
			if found, err := greet(ctx, "quarch", address); err == nil {
				p = found
			} else {
				p.Trouble += "\nA LabJack (Modbus) and NI's server (gRPC) are not asked: --instrument labjack or nidaqmx opens them"
			}
		}
		return p
	}
	var fits []string
	for _, p := range ports {
		if p.Address == a.Target {
			fits = p.Kinds
		}
	}
	if len(fits) == 0 { // an adapter that any meter may use
		if line, ok := listen(ctx, address); ok {
			return askedPort{Address: address, Model: "sends by itself: " + line, Kinds: []string{"serialtext"}}
		}
	}
	var said []string
	for _, kind := range greeted {
		if len(fits) > 0 && !slices.Contains(fits, kind) {
			continue
		}
		// Wrong answer or silence: try the next kind. Any other error (the port is busy or
		// missing) would repeat, so it ends the search.
		p, err := greet(ctx, kind, address)
		if err == nil {
			return p
		}
		said = append(said, cli.FirstLineOf(err))
		if !errors.Is(err, instrument.ErrIdentity) && !errors.Is(err, instrument.ErrSilent) { // it cannot be opened
			return askedPort{Address: address, Trouble: cli.FirstLineOf(err)}
		}
	}
	if len(fits) > 0 && len(said) > 0 {
		return askedPort{Address: address, Trouble: strings.Join(said, "; ")}
	}
	return askSCPI(ctx, address)
}

// listen returns the last whole line of text that comes on a serial line unasked; false where none comes in askTime,
// or no text.
func listen(ctx context.Context, address string) (line string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := transport.Dial(ctx, address, transport.Options{})
	if err != nil {
		return "", false
	}
	defer c.Close()
	var got []byte
	for b := make([]byte, 512); bytes.Count(got, []byte("\n")) < 3 && len(got) < 1<<12; {
		n, err := c.Read(ctx, b)
		if err != nil {
			return "", false
		}
		got = append(got, b[:n]...)
	}
	lines := strings.Split(string(got), "\n") // the first and the last may be parts of lines
	line = strings.TrimSpace(lines[len(lines)/2])
	return line, len(lines) > 2 && line != "" && measure.Printable(line) == line
}

// greet opens the address with a kind's driver, closes it, and returns it with its identity. A
// timeout counts as ErrSilent.
func greet(ctx context.Context, kind, address string) (p askedPort, err error) {
	k, err := registry.Lookup(kind)
	if err != nil {
		return p, err
	}
	dev, err := k.New(registry.Env{}, address, k.Options())
	if err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	err = dev.Open(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", instrument.ErrSilent, err)
	}
	id := dev.Identity()
	p = askedPort{Address: address, Model: id.Model, Serial: id.Serial, Firmware: id.Firmware, Kinds: []string{kind}}
	return p, errors.Join(err, dev.Close())
}

func askSCPI(ctx context.Context, address string) askedPort {
	p := askedPort{Address: address}
	var id scpi.Identity
	c := scpi.New(scpi.Config{
		Address: address, Timeout: askTime,
		Accept: func(i scpi.Identity) error { id = i; return nil },
	})
	err := c.Open(ctx)
	_ = c.Close()
	if err != nil {
		p.Trouble = err.Error()
		return p
	}
	p.Maker, p.Model, p.Serial, p.Firmware = id.Maker, id.Model, id.Serial, id.Firmware
	p.Kinds = registry.ForIdentity(id.Maker, id.Model)
	return p
}

// survey opens an instrument and streams it for f.length, or until ctx ends where that is
// 0, and returns the statistics of its readings. The calibration in force is printed
// once the instrument is open; each is called twice a second from then on, in another
// goroutine than the stream's.
func survey(ctx context.Context, a *cli.App, f meterFlags, bar *cli.Progress, each func(monitor.Bench, *checkup.Survey),
) (*checkup.Result, error) {
	b, closeBench, err := session.OpenBench(f.BenchFlags)
	if err != nil {
		return nil, err
	}
	defer closeBench()
	setup, remarks, err := openFree(ctx, b)
	if err != nil {
		return nil, err
	}
	a.Textf("%s\n", f.CalibrationText(&setup))
	for _, r := range remarks {
		fmt.Fprintln(a.Err, "Note:", r)
	}
	s, err := checkup.New(&setup)
	if err != nil {
		return nil, err
	}
	// Ctrl-C ends the measurement, not the report.
	measuring, stop := context.WithCancel(ctx)
	defer stop()
	if f.length > 0 {
		measuring, stop = context.WithTimeout(ctx, f.length)
		defer stop()
	}
	// ended stops watchSurvey when the stream is over, for whatever reason.
	ended := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() { watchSurvey(a, bar, ended, b, s, each) })
	err = b.Instrument.Stream(measuring, s.Sink())
	close(ended)
	if g.Wait(); err != nil {
		return nil, err
	}
	return s.Result(), nil
}

// openFree opens a bench, and waits for 3 s at most while another program has the port: a monitor lets go of that of
// a free bench only after its last viewer has left.
func openFree(ctx context.Context, b monitor.Bench) (setup measure.Setup, remarks []string, err error) {
	const letsGo = 3 * time.Second
	for begin := time.Now(); ; {
		setup, remarks, err = b.Open(ctx)
		if !errors.Is(err, transport.ErrBusy) || time.Since(begin) > letsGo || backoff.Sleep(ctx, letsGo/30) != nil {
			return setup, remarks, err
		}
	}
}

// watchSurvey calls each until ended is closed, and shows the progress of instruments that record first and
// deliver their memory afterwards: on bar or, where that is nil, on a line of its own.
func watchSurvey(a *cli.App, bar *cli.Progress, ended <-chan struct{}, b monitor.Bench, s *checkup.Survey,
	each func(monitor.Bench, *checkup.Survey),
) {
	defer func() { bar.End() }()
	for range backoff.Every(ended, 500*time.Millisecond) {
		each(b, s)
		if done, total := s.Delivery(); total > 0 {
			if bar == nil {
				bar = a.Progress("reading the instrument's memory")
			}
			bar.Note("reading the instrument's memory")
			bar.Set(int(done), int(total))
		}
	}
}
