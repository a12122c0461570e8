//go:build linux

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/fault"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/instrument/powersensor3"
)

// ps is an emulated PowerSensor3 on a pty.
func ps(t *testing.T) (*ps3face.Face, *plug) {
	t.Helper()
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := ps3face.New(b, pace.Real(time.Now()), ps3face.Config{Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	return f, plugIn(t, f, fault.Faults{})
}

// typed runs a command with something typed into it.
func typed(t *testing.T, in string, args ...string) (out, complaints string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	err = execute(t.Context(), args, cli.Streams{In: strings.NewReader(in), Out: &o, Err: &e})
	return o.String(), e.String(), err
}

func TestPowerSensor3Config(t *testing.T) {
	t.Parallel()
	f, plug := ps(t)
	config := []string{"powersensor3", "config", "--port", plug.Path}
	was := f.Stored()
	out, _, err := typed(t, "", config...)
	if err != nil || strings.Count(out, "\n") < powersensor3.Sensors || !strings.Contains(out, was[0].Type) {
		t.Fatalf("%v\n%s", err, out)
	}
	change := append(config, "--set", "pair0.name=slot", "--set", "sensor0.vref=1.6", "--set", "sensor1.sensitivity=0.25", "--set", "sensor6.in_use=false", "--set", "sensor7.in_use=false")
	if out, _, err = typed(t, "n\n", change...); err == nil || f.Stored() != was || !strings.Contains(out, "becomes") {
		t.Fatalf("not agreed: %v\n%s", err, out)
	}
	if out, _, err = typed(t, "y\n", change...); err != nil || !strings.Contains(out, "the same") {
		t.Fatalf("%v\n%s", err, out)
	}
	now := f.Stored()
	if now[0].Pair != "slot" || now[1].Pair != "slot" || now[0].Vref != 1.6 || now[1].Sensitivity != 0.25 || now[6].InUse || now[7].InUse || now[2] != was[2] {
		t.Errorf("%+v", now)
	}
	if out, _, err = typed(t, "", change...); err != nil || !strings.Contains(out, "already") {
		t.Errorf("a second time: %v\n%s", err, out)
	}
	if out, _, err = typed(t, "", append(config, "--json")...); err != nil || !strings.Contains(out, `"slot"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// What would make a device useless, and what cannot be meant, is refused before
// anything is sent.
func TestPowerSensor3ConfigRefuses(t *testing.T) {
	t.Parallel()
	f, plug := ps(t)
	was := f.Stored()
	for set, want := range map[string]string{
		"sensor8.vref=1": "sensor0 to sensor7", "pair0.vref=1": "pair0.name", "sensor0.vref=x": "finite number", "sensor0.vref": "KEY=VALUE",
		"pair1.name=a name that is too long": "15 bytes", "sensor0.in_use=maybe": "true or false", "sensor0.sensitivity=0": "nothing was written",
	} {
		_, _, err := typed(t, "", "powersensor3", "config", "--port", plug.Path, "--yes", "--set", set)
		if err == nil || !strings.Contains(err.Error(), want) || f.Stored() != was {
			t.Errorf("--set %s: %v", set, err)
		}
	}
	if _, _, err := typed(t, "", "powersensor3", "config"); err == nil || cli.ExitCode(err) != cli.ExitFailed && cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("without a port: %v", err)
	}
}

// A device that loses an answer in the middle has stored a part: the program says
// which.
func TestPowerSensor3ConfigSaysWhatTheDeviceHolds(t *testing.T) {
	t.Parallel()
	f, plug := ps(t)
	was := f.Stored()
	// Version and configuration come first, and each stored sensor is answered with
	// one byte: the third answer is lost.
	var reads int64
	_, _, err := typed(t, "", "powersensor3", "config", "--port", plug.Path)
	if err != nil {
		t.Fatal(err)
	}
	reads = plug.Line.Counts().Sent
	plug.Pull()
	plug = plugIn(t, f, fault.Faults{Script: []fault.Fault{{Kind: fault.Drop, At: reads + 2, Bytes: 1}}})
	_, complaints, err := typed(t, "", "powersensor3", "config", "--port", plug.Path, "--yes", "--set", "pair0.name=a", "--set", "pair1.name=b")
	if !errors.Is(err, powersensor3.ErrPartial) || !strings.Contains(err.Error(), "write sensor 2") {
		t.Fatalf("%v", err)
	}
	now := f.Stored()
	if now[0].Pair != "a" || now[2].Pair != "b" || now[3] != was[3] {
		t.Errorf("%+v", now)
	}
	for i, want := range []string{"a", "a", "b", was[3].Pair} {
		line := strings.Split(complaints, "\n")[i+3]
		if !strings.Contains(line, " "+want+" ") {
			t.Errorf("sensor %d: %q, the device holds %q", i, line, want)
		}
	}
}
