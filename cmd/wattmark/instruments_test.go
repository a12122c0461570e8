package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/doctor"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/monitor/discover"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmd2face "github.com/wattmark/wattmark/monitor/emulator/pmd2"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	textface "github.com/wattmark/wattmark/monitor/emulator/serialtext"
)

// serveEmulated runs `emulate KIND --listen` and returns where it listens.
func serveEmulated(t *testing.T, kind string) (address string) {
	t.Helper()
	out, says := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		a := &cli.App{Streams: cli.Streams{Out: says, Err: io.Discard}}
		ended <- bench.Emulate(ctx, a, []string{kind}, bench.EmulateFlags{Listen: "127.0.0.1:0", Period: time.Hour})
	}()
	line := make([]byte, 200)
	n, err := out.Read(line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if address = regexp.MustCompile(`tcp:[0-9.:]+`).FindString(string(line[:n])); err != nil || address == "" {
		t.Fatalf("%q, %v", line[:n], err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		_ = says.Close()
	})
	return address
}

func TestProbeAndCheckOfAMeter(t *testing.T) {
	t.Parallel()
	address := serveEmulated(t, "powersensor3")
	var out, complaints bytes.Buffer
	s := cli.Streams{Out: &out, Err: &complaints}
	if err := execute(t.Context(), []string{"instruments", "probe", "--instrument", "powersensor3", "--port", address, "--for", "500ms", "--json"}, s); err != nil {
		t.Fatal(err)
	}
	var p bench.ProbeJSON
	if err := json.Unmarshal(out.Bytes(), &p); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if len(p.Rails) != 4 || p.Rails[0].Name != "pcie_3v3" || math.Abs(p.Rails[0].Voltage.Mean-3.3) > 0.1 {
		t.Errorf("%+v", p)
	}
	out.Reset()
	if err := execute(t.Context(), []string{"instruments", "check", "--instrument", "powersensor3", "--port", address, "--for", "1s"}, s); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"noise a scan", "kS/s reached", "no sample lost", "a supply of 3.3 V"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if complaints.Len() > 0 {
		t.Error(complaints.String())
	}
}

func TestInstrumentsAnswerWhoTheyAre(t *testing.T) {
	t.Parallel()
	models := map[string]string{
		"ds1054z": "RIGOL DS1054Z", "dho804": "RIGOL DHO804", "dsox1102g": "KEYSIGHT DSO-X 1102G", "sds2104x-plus": "SIGLENT SDS2104X PLUS",
		"mdo3014": "TEKTRONIX MDO3014", "rtb2004": "ROHDE RTB2004", "u2356a": "KEYSIGHT U2356A", "wt310": "YOKOGAWA WT310", "quarch": " Power Analysis Module",
	}
	args := []string{"instruments", "--json"}
	var order []string
	for kind := range models {
		order = append(order, kind)
		args = append(args, "--ask", serveEmulated(t, kind))
	}
	var out bytes.Buffer
	if err := execute(t.Context(), args, cli.Streams{Out: &out, Err: io.Discard}); err != nil {
		t.Fatal(err)
	}
	var l bench.InstrumentList
	if err := json.Unmarshal(out.Bytes(), &l); err != nil || len(l.Asked) != len(order) {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	for i, kind := range order {
		p := l.Asked[i]
		maker, model, _ := strings.Cut(models[kind], " ")
		if !strings.Contains(strings.ToUpper(p.Maker), maker) || !strings.EqualFold(p.Model, model) || p.Trouble != "" {
			t.Errorf("%s: %+v", kind, p)
		}
		if len(p.Kinds) != 1 || p.Kinds[0] != bench.DriverOf(kind) {
			t.Errorf("%s: %v, want %s alone", kind, p.Kinds, bench.DriverOf(kind))
		}
	}
}

func TestProbeNeedsAMeter(t *testing.T) {
	err := execute(t.Context(), []string{"instruments", "probe"}, cli.Streams{Out: io.Discard, Err: io.Discard})
	if cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("%v: want wrong usage", err)
	}
}

// What a monitor would apply, probe and check apply too, and say so.
func TestProbeAppliesTheCalibrationInForce(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	address := serveEmulated(t, "powersensor3")
	dir := t.TempDir()
	bench_ := filepath.Join(dir, "bench.yaml")
	if err := os.WriteFile(bench_, []byte(fmt.Sprintf(ps3Bench, address)), 0o600); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) string {
		t.Helper()
		var out, complaints bytes.Buffer
		if err := execute(t.Context(), args, cli.Streams{Out: &out, Err: &complaints}); err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out.String(), complaints.String())
		}
		return out.String()
	}
	current := func(command string, more ...string) (mean float64, p bench.ProbeJSON) {
		t.Helper()
		text := do(append([]string{"instruments", command, "--for", "300ms", "--json"}, more...)...)
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Rails {
			if r.Name == "aux_12v_1" {
				return r.Current.Mean, p
			}
		}
		t.Fatalf("no rail aux_12v_1 in %s", text)
		return 0, p
	}
	before, p := current("probe", "--bench", bench_)
	if len(p.Records) != 0 {
		t.Errorf("records %v before any", p.Records)
	}
	// A reference that reads less.
	do("calibrate", "gain", "--bench", bench_, "--channel", "aux_12v_1.current", "--value", fmt.Sprintf("%.4fA", 0.85*before), "--u", "1%", "--for", "300ms", "--by", "ada", "--yes")
	for _, command := range []string{"probe", "check"} {
		after, p := current(command, "--bench", bench_)
		if math.Abs(after/before-0.85) > 0.05 || len(p.Records) != 1 {
			t.Errorf("%s: %v A under %v, it was %v A", command, after, p.Records, before)
		}
		nominal, p := current(command, "--bench", bench_, "--nominal")
		if math.Abs(nominal/before-1) > 0.05 || len(p.Records) != 0 {
			t.Errorf("%s --nominal: %v A under %v, it was %v A", command, nominal, p.Records, before)
		}
		after, p = current(command, "--instrument", "powersensor3", "--port", address, "--calibration", filepath.Join(dir, "calibration"))
		if math.Abs(after/before-0.85) > 0.05 || len(p.Records) != 1 {
			t.Errorf("%s --calibration: %v A under %v, it was %v A", command, after, p.Records, before)
		}
	}
	if text := do("instruments", "probe", "--bench", bench_, "--for", "100ms"); !strings.Contains(text, "1 calibration record in force") || !strings.Contains(text, "--nominal leaves them out") {
		t.Error(text)
	}
	found, _, err := doctor.OpenOnce(t.Context(), session.BenchFlags{File: bench_})
	if err != nil || !strings.Contains(found, "1 calibration record in force") {
		t.Errorf("doctor: %q, %v", found, err)
	}
}

// plug is an emulated device on a pseudo-terminal.
type plug struct {
	Path string
	Line *fault.Line
	Pull func() // the line and the power, and waits until the device has ended
}

// plugIn connects a device until Pull, or the test's end.
func plugIn(t *testing.T, f interface {
	Run(context.Context, io.ReadWriteCloser) error
}, faults fault.Faults,
) *plug {
	t.Helper()
	port, err := pty.OpenPort()
	if err != nil {
		t.Skip("no ptys here: ", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p, ended := &plug{Path: port.Path(), Line: fault.New(port, faults)}, make(chan struct{})
	go func() { defer close(ended); _ = f.Run(ctx, p.Line) }()
	p.Pull = func() { cancel(); <-ended }
	t.Cleanup(p.Pull)
	return p
}

// A USB number that several meters have is no name: the device is asked for its greeting.
func TestASharedPortIsAskedForItsGreeting(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	ps3, err := ps3face.New(b, pace.Pace{Epoch: time.Now()}, ps3face.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pmd2, err := pmd2face.New(b, pace.Pace{Epoch: time.Now()}, pmd2face.Config{})
	if err != nil {
		t.Fatal(err)
	}
	view, err := pmd2face.New(b, pace.Pace{Epoch: time.Now()}, pmd2face.Config{WireView: true})
	if err != nil {
		t.Fatal(err)
	}
	for kind, face := range map[string]interface {
		Run(context.Context, io.ReadWriteCloser) error
	}{"powersensor3": ps3, "pmd2": pmd2, "wireview-pro2": view} {
		plug := plugIn(t, face, fault.Faults{})
		ports := []discover.Port{{Address: plug.Path, USB: "0483:5740", Kinds: []string{"powersensor3", "pmd2", "wireview-pro2"}}}
		if p := bench.AskIdentity(t.Context(), plug.Path, ports); !slices.Equal(p.Kinds, []string{kind}) || p.Trouble != "" || p.Model == "" {
			t.Errorf("%s: %+v", kind, p)
		}
	}
}

// A serial meter that answers no question, and sends lines by itself, is identified by one of them.
func TestAskOfATalkingMeter(t *testing.T) {
	t.Parallel()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	face, err := textface.New(b, pace.Pace{Epoch: time.Now()}, textface.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := bench.AskIdentity(t.Context(), plugIn(t, face, fault.Faults{}).Path, nil)
	if !slices.Equal(p.Kinds, []string{"serialtext"}) || p.Trouble != "" || strings.Count(p.Model, ",") != 2 {
		t.Errorf("%+v", p)
	}
}

// A channel that only the instrument knows not to have ends the service as any other
// fault of the bench file does: systemd does not start it again.
func TestWrongChannelEndsTheMonitor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bench := filepath.Join(dir, "bench.yaml")
	text := fmt.Sprintf(ps3Bench, serveEmulated(t, "powersensor3")) + "rails:\n- name: pcie_12v\n  clamp: {current: pcie_12v.curent, voltage: pcie_12v.voltage}\n"
	if err := os.WriteFile(bench, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := execute(t.Context(), []string{"monitor", "--bench", bench, "--listen", "127.0.0.1:0", "--spool", filepath.Join(dir, "spool")}, cli.Streams{Out: io.Discard, Err: io.Discard})
	if cli.ExitCode(err) != cli.ExitUsage {
		t.Fatalf("exit code %d: %v", cli.ExitCode(err), err)
	}
	for _, want := range []string{"bench.yaml:7:20", "pcie_12v.curent", ">   7 |", "^"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nsays nothing of %q", err, want)
		}
	}
}
