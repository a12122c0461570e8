package run

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// The power at rest is of the time since the bench was last in use, and not of the rest before.
// What a command shows stands beside it where the terminal has room for both, else below.
func TestHintsFit(t *testing.T) {
	next := [][2]string{{"wattmark show 1", "a task"}, {"wattmark tasks", "all"}}
	wide := "  wattmark show 1   a task\n  wattmark tasks    all\n"
	below := "  wattmark show 1\n    a task\n  wattmark tasks\n    all\n"
	for columns, want := range map[int]string{0: wide, 26: wide, 25: below} {
		if got := inColumns(next, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

func TestRestingBeginsAnew(t *testing.T) {
	var r resting
	for i, m := range []struct {
		capture string
		w       measure.Watt
	}{
		{"", 900},
		{"", 300},
		{"", 300},
		{"ours", 700},
		{"", 500}, // a part of it may be the capture's
		{"", 60},
		{"", 64},
	} {
		r.add(session.Moment{CaptureID: m.capture, T: measure.Seconds(i), Total: m.w})
	}
	if r.over() != 2 || r.mean() != 62 {
		t.Errorf("%v over %v", r.mean(), r.over())
	}
}

// A command line is split as by a shell, which expands nothing.
func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		`./gemm 4096`:                  {"./gemm", "4096"},
		` sh -c 'a | b > "c" $x' `:     {"sh", "-c", `a | b > "c" $x`},
		`a "b c"'d' \$e ''`:            {"a", "b cd", "$e", ""},
		`a "say \"it\""`:               {"a", `say "it"`},
		"--benchmark half\t--pulse 1s": {"--benchmark", "half", "--pulse", "1s"},
		``:                             nil,
	} {
		if got, err := words(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{`a | b`, `a > b`, `a $HOME`, `a *.c`, `a; b`, `a "b`, `a 'b`, `a \`} {
		if got, err := words(text); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// The program finds the library that records it, unless its own environment names one.
func TestProgramFindsTheLibrary(t *testing.T) {
	for own, want := range map[string]string{"": "/lib/libwattmark.so", "/mine.so": "/mine.so"} {
		t.Setenv("WATTMARK_LIBRARY", own)
		var out bytes.Buffer
		r := &autoRun{library: "/lib/libwattmark.so", logs: t.TempDir()}
		a := &cli.App{Streams: cli.Streams{In: os.Stdin, Out: &out, Err: &out}}
		cfg := measurement.Config{Device: measurement.Onlooker(gpu.Info{})}
		work, err := r.work(t.Context(), a, &RunFlags{}, []string{"sh", "-c", "printf %s $WATTMARK_LIBRARY"}, &cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := work(t.Context()); err != nil || out.String() != want {
			t.Errorf("%q: %s, %v", own, &out, err)
		}
	}
}
