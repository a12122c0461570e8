package instructions

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wattmark/wattmark/store"
)

func TestRunsSurviveAFile(t *testing.T) {
	p := some(t, 1)
	p.Seed, p.Host, p.Version = 7, "lab", "0.1.0"
	runs, err := measured(t, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	for _, r := range runs {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		file.WriteString("\n") // an empty line hurts nobody
	}
	back, err := ReadRuns(&file, "runs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(runs, back, cmpopts.IgnoreUnexported(Run{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Estimates(runs), Estimates(back)); d != "" {
		t.Error(d)
	}
}

// The database gives back what a file does.
func TestRunsSurviveTheDatabase(t *testing.T) {
	p := some(t, 2)
	p.Seed, p.Host, p.Version = 1<<63|7, "lab", "0.1.0"
	runs, err := measured(t, p, func(m *fakeMachine, _ context.CancelFunc) {
		m.least = map[string]bool{"div.s32": true}
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, _ := runs[0].Stored()
	id, err := db.BeginInstructions(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for n := range runs {
		_, r := runs[n].Stored()
		if _, err := db.AddInstruction(t.Context(), id, r); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = db.InstructionCampaign(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	stored, err := db.Instructions(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	back := FromStore(c, stored)
	if d := cmp.Diff(runs, back, cmpopts.IgnoreUnexported(Run{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Estimates(runs), Estimates(back)); d != "" {
		t.Error(d)
	}
}

const goodLine = `{"instruction":"idle","layout":"one-thread","campaign":"2026-01-01T00:00:00Z"}` + "\n"

func TestReadErrorsNameTheLine(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{goodLine + "\n{\"instruction\":", "f.jsonl:3: no run of wattmark instructions: unexpected EOF"},
		{
			goodLine + `{"instruction":"idle","speed":3}`,
			`f.jsonl:2: no run of wattmark instructions: json: unknown field "speed"`,
		},
		{"null\n", "f.jsonl:1: a run without an instruction"},
		{`{"instruction":"idle","layout":"one-thread"}`, "f.jsonl:1: a run of idle without its campaign"},
		{
			`{"instruction":"idle","layout":"half","campaign":"2026-01-01T00:00:00Z"}`,
			`f.jsonl:1: a run of idle with the layout "half": want one-thread or whole-gpu`,
		},
		{strings.TrimSpace(goodLine) + goodLine, "f.jsonl:1: more than one run in a line"},
		{goodLine + strings.Repeat(" ", mostLine+1), "f.jsonl:2: bufio.Scanner: token too long"},
		{
			`{"instruction":"idle","layout":"one-thread","campaign":"2026-01-01T00:00:00Z","time_s":-1}`,
			"f.jsonl:1: a run of idle with a negative time",
		},
		{
			`{"instruction":"idle","layout":"one-thread","campaign":"2026-01-01T00:00:00Z","power_w":{"guess":1}}`,
			`f.jsonl:1: a run of idle with a power by "guess"`,
		},
	} {
		_, err := ReadRuns(strings.NewReader(tc.text), "f.jsonl")
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

// Whatever a file holds, no energy is made of nothing.
func FuzzReadRuns(f *testing.F) {
	f.Add(goodLine)
	f.Add(`{"instruction":"add.s32","layout":"whole-gpu","level":3,"steps":200,"campaign":"2026-01-01T00:00:00Z","block":true,"base":"a","power_w":{"sma":1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		runs, err := ReadRuns(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		if len(runs) > strings.Count(text, "\n")+1 {
			t.Errorf("%d runs of %d lines", len(runs), strings.Count(text, "\n")+1)
		}
		if e := Estimates(runs); len(e) > len(runs)*(len(Methods())+1) {
			t.Errorf("%d estimates of %d runs", len(e), len(runs))
		}
	})
}
