package nidaqmx

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

// python is Debian's own, which sees Debian's packages.
const python = "/usr/bin/python3"

func needPython(t *testing.T) {
	t.Helper()
	out, err := exec.Command(python, "-c", "import grpc, grpc_tools, google.protobuf").CombinedOutput()
	if err == nil {
		return
	}
	reason := fmt.Sprintf("no gRPC for Python (apt-get install python3-grpcio python3-grpc-tools python3-protobuf): "+
		"%v\n%s", err, out)
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// found is what testdata/foreign_client.py prints.
type found struct {
	Made       []any   `json:"made"`
	Again      []any   `json:"again"`
	Absent     []any   `json:"absent"`
	Unset      []any   `json:"unset"`
	Device     []any   `json:"device"`
	List       []any   `json:"list"`
	Text       string  `json:"text"`
	Buffer     int     `json:"buffer"`
	Rate       float64 `json:"rate"`
	Convert    float64 `json:"convert"`
	Model      string  `json:"model"`
	Raw        []any   `json:"raw"`
	RawAmperes float64 `json:"raw_amperes"`
	Volts      float64 `json:"volts"`
	Amperes    float64 `json:"amperes"`
	Late       []any   `json:"late"`
	Small      []any   `json:"small"`
	Position   int     `json:"position"`
	Cleared    []any   `json:"cleared"`
}

// A client that we did not write, in another language, with stubs made from the
// .proto files here and now, measures a steady card over a real socket.
func TestForeignClient(t *testing.T) {
	needPython(t)
	f, at := serve(t, pace.Real(time.Now()), Config{})
	if _, err := f.board.SetLoad(0, load.Idle); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "foreign_client.py"),
		filepath.Join("..", "..", "..", "proto"), at)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var got found
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout.String())
	}
	driver := func(code string) []any {
		return []any{"UNKNOWN", map[string]any{"ni-error": code}}
	}
	type any2 = map[string]any
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"a task", got.Made, []any{0.0, "script", true}},
		{"the same again", got.Again, []any{"ALREADY_EXISTS", any2{}}},
		{"attach to nothing", got.Absent, []any{"FAILED_PRECONDITION", any2{}}},
		{"neither arm", got.Unset, []any{"INVALID_ARGUMENT", any2{}}},
		{"another device", got.Device, driver("-200220")},
		{"ranges and lists", got.List, []any{any2{}, 5.0, any2{"ni-error": "-200170"}, 5.0, any2{}, 6.0}},
		{"an error's text", got.Text, "The device identifier is invalid."},
		{"buffer", got.Buffer, 100_000},
		{"model", got.Model, "USB-6259"},
		{"raw", got.Raw, []any{0.0, 1000.0, 2.0, 4000.0}},
		{"time-out", got.Late, []any{-200284.0, true}},
		{"no room", got.Small, []any{"UNKNOWN", any2{"ni-error": "-200229", "ni-samps-per-chan-read": "0"}}},
		{"position", got.Position, 2000},
		{"cleared", got.Cleared, driver("-200088")},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s: %s", c.what, d)
		}
	}
	rail := f.board.At(time.Second)[railNamed(f.board, "aux_12v_1")]
	for _, c := range []struct {
		what            string
		got, want, most float64
	}{
		{"rate", got.Rate, 10_000, 1e-6},
		{"conversions", got.Convert, 1e6 / 11, 1},
		{"volts", got.Volts, float64(rail.V), 1e-3},
		{"amperes", got.Amperes, float64(rail.I), 2e-3},
		{"amperes from raw codes", got.RawAmperes, float64(rail.I), 2e-3},
	} {
		if !(math.Abs(c.got-c.want) <= c.most) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

func railNamed(b *board.Board, name string) int {
	for k, r := range b.Rails() {
		if r.Name == name {
			return k
		}
	}
	return -1
}
