package store

import (
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

func TestAnalysesKeepTheirVersions(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	ok(t, err)
	defer db.Close()
	made := time.Unix(1_700_000_000, 5)
	put := func(kind, name, content string, tasks ...TaskID) int {
		t.Helper()
		v, err := db.PutAnalysis(t.Context(), Analysis{Kind: kind, Name: name, Made: made, Maker: "wattmark test", Content: json.RawMessage(content), Tasks: tasks})
		ok(t, err)
		return v
	}
	for i, c := range []string{`{"a":1}`, `{"a":2}`} {
		if v := put("sensor-profile", "GPU-1", c, 7, 3, 7); v != i+1 {
			t.Errorf("version %d, want %d", v, i+1)
		}
	}
	put("counter-model", "GPU-1", `[]`)

	got, err := db.Analysis(t.Context(), "sensor-profile", "GPU-1", 0)
	ok(t, err)
	want := &Analysis{Kind: "sensor-profile", Name: "GPU-1", Version: 2, Made: made, Maker: "wattmark test", Content: json.RawMessage(`{"a":2}`), Tasks: []TaskID{3, 7}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	first, err := db.Analysis(t.Context(), "sensor-profile", "GPU-1", 1)
	ok(t, err)
	if string(first.Content) != `{"a":1}` {
		t.Errorf("version 1: %s", first.Content)
	}
	for kind, n := range map[string]int{"": 3, "sensor-profile": 2, "none": 0} {
		if list, err := db.Analyses(t.Context(), kind); err != nil || len(list) != n {
			t.Errorf("%q: %d analyses (%v), want %d", kind, len(list), err, n)
		}
	}

	if n, err := db.DeleteAnalysis(t.Context(), "sensor-profile", "GPU-1", 0); err != nil || n != 2 {
		t.Errorf("deleted %d: %v", n, err)
	}
	if _, err := db.DeleteAnalysis(t.Context(), "sensor-profile", "GPU-1", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := db.Analysis(t.Context(), "sensor-profile", "GPU-1", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("read after: %v", err)
	}
	for _, bad := range []Analysis{{Name: "x", Content: json.RawMessage(`1`)}, {Kind: "x", Content: json.RawMessage(`1`)}, {Kind: "x", Name: "y", Content: json.RawMessage(`{`)}} {
		if _, err := db.PutAnalysis(t.Context(), bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestTinyIsKept(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	if got, err := d.Tiny(t.Context(), id); got != nil || err != nil {
		t.Fatalf("before it was put: %+v, %v", got, err)
	}
	want := Tiny{
		Method: "fold", Kernel: "vadd", Launches: 4000, Energy: measure.Estimate{Energy: 2.8e-3, U: 1e-5},
		Budget: []measure.Contribution{{Source: "gain x", U: 4e-6, Systematic: true}, {Source: "scatter", U: 3e-6}},
		Length: 1e-5, Gap: 1e-6, Carrier: 190, DOF: 8, Residual: 1e-3,
		Above:   measure.Estimate{Energy: 1e-3, U: 1e-5},
		Profile: []TinyBin{{At: -1e-5, Power: 190, U: 0.1, Readings: 31}, {At: 1e-5, Power: 250, U: 0.2, Readings: 29}},
		Plan:    json.RawMessage(`{"Blocks":3}`), Warnings: []string{"warm"},
	}
	ok(t, d.PutTiny(t.Context(), id, want))
	same := func() {
		t.Helper()
		got := must(d.Tiny(t.Context(), id))(t)
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Error(diff)
		}
	}
	same()
	// Once more replaces all of it.
	want.Method, want.Profile, want.Budget, want.Warnings = "contrast", nil, want.Budget[:1], nil
	ok(t, d.PutTiny(t.Context(), id, want))
	want.Warnings = []string{}
	same()
	want.Carrier = measure.Watt(math.NaN()) // there was none
	ok(t, d.PutTiny(t.Context(), id, want))
	if got := must(d.Tiny(t.Context(), id))(t); !math.IsNaN(float64(got.Carrier)) {
		t.Errorf("a carrier of %v", got.Carrier)
	}
	if err := d.PutTiny(t.Context(), 99, want); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	if err := d.PutTiny(t.Context(), id, Tiny{Plan: json.RawMessage("{")}); err == nil {
		t.Error("a plan that is no JSON was stored")
	}
	// It goes with its task.
	ok(t, d.DeleteTask(t.Context(), id))
	var rows int
	ok(t, d.SQL().QueryRow(`SELECT (SELECT count(*) FROM tiny)+(SELECT count(*) FROM tiny_budget)+(SELECT count(*) FROM tiny_profile)`).Scan(&rows))
	if rows != 0 {
		t.Errorf("%d rows are left of a task that was deleted", rows)
	}
}

func campaign(at time.Time) InstructionCampaign {
	return InstructionCampaign{
		GPU: "H200", GPUUUID: "GPU-1", Driver: "580", Started: at, Seed: math.MaxUint64 - 1, Host: "lab", Version: "0.1.0",
	}
}

func someRuns() []InstructionRun {
	return []InstructionRun{
		{
			Instruction: "idle", Layout: "one-thread",
			ProgramRun: ProgramRun{Time: 0.3, Reads: 4e5, Power: map[string]measure.Watt{"sma": 125.5, "instant": 126}},
		},
		{
			Pass: 1, Instruction: "div.rn.f64", Layout: "whole-gpu", Level: 3, Steps: 200, ProgramRun: ProgramRun{
				Block: true, Base: "ab", Turns: 1e6, Threads: 270336, Time: 0.41, Cycles: 1 << 40, X: 1<<63 | 5, Checked: true,
				Reads: 5e5, SM: 1.98e9, Celsius: 41, Power: map[string]measure.Watt{"mtsm": 410.25},
			},
		},
		{Instruction: "add.bf16", Layout: "one-thread", ProgramRun: ProgramRun{Error: "no such instruction"}},
	}
}

func TestInstructionsAreKept(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := must(d.BeginInstructions(ctx, campaign(epoch)))(t)
	for n, r := range someRuns() {
		if got := must(d.AddInstruction(ctx, id, r))(t); got != n+1 {
			t.Errorf("run %d has the number %d", n+1, got)
		}
	}
	if diff := cmp.Diff(someRuns(), must(d.Instructions(ctx, id))(t)); diff != "" {
		t.Error(diff)
	}
	ok(t, d.AddInstructionPowers(ctx, id, "meter", map[int]measure.Watt{1: 130, 2: 400}))
	runs := must(d.Instructions(ctx, id))(t)
	if runs[0].Power["meter"] != 130 || runs[1].Power["meter"] != 400 || runs[1].Power["mtsm"] != 410.25 || runs[2].Power != nil {
		t.Errorf("got %v, %v, %v", runs[0].Power, runs[1].Power, runs[2].Power)
	}
	want := campaign(epoch)
	want.ID, want.Runs, want.Passes = id, 3, 2
	if diff := cmp.Diff(want, must(d.InstructionCampaign(ctx, id))(t)); diff != "" {
		t.Error(diff)
	}
}

func TestInstructionsAreImportedOnce(t *testing.T) {
	d, ctx := open(t), t.Context()
	first := must(d.ImportInstructions(ctx, campaign(epoch), someRuns()))(t)
	if _, err := d.ImportInstructions(ctx, campaign(epoch), someRuns()); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "campaign 1 already") {
		t.Errorf("the same again: %v", err)
	}
	if _, err := d.BeginInstructions(ctx, campaign(epoch)); !errors.Is(err, ErrConflict) {
		t.Errorf("begun again: %v", err)
	}
	broken := someRuns()
	broken[2].Power = map[string]measure.Watt{"sma": measure.Watt(math.NaN())} // NOT NULL
	if _, err := d.ImportInstructions(ctx, campaign(epoch.Add(time.Hour)), broken); err == nil {
		t.Error("a power that is no number is taken")
	}
	second := must(d.ImportInstructions(ctx, campaign(epoch.Add(time.Minute)), someRuns()[:1]))(t)
	list := must(d.InstructionCampaigns(ctx))(t)
	if len(list) != 2 || list[0].ID != second || list[1].ID != first || list[1].Runs != 3 {
		t.Errorf("got %+v: want two, the newest first, and nothing of the one that failed", list)
	}
	ok(t, d.DeleteInstructions(ctx, first))
	var left int
	ok(t, d.SQL().QueryRow(`SELECT (SELECT count(*) FROM instruction_run WHERE campaign_id=?)+(SELECT count(*) FROM instruction_power WHERE campaign_id=?)`, first, first).Scan(&left))
	if left != 0 {
		t.Errorf("%d rows are left of a campaign that was deleted", left)
	}
	if third := must(d.ImportInstructions(ctx, campaign(epoch), nil))(t); third <= second {
		t.Errorf("the number %d is used again", third)
	}
}

func TestNoSuchCampaign(t *testing.T) {
	d, ctx := open(t), t.Context()
	_, add := d.AddInstruction(ctx, 7, InstructionRun{})
	_, read := d.Instructions(ctx, 7)
	_, one := d.InstructionCampaign(ctx, 7)
	for _, err := range []error{
		add, read, one, d.DeleteInstructions(ctx, 7), d.AddInstructionPowers(ctx, 7, "meter", nil),
	} {
		if !errors.Is(err, ErrNoCampaign) || !strings.Contains(err.Error(), "campaign 7") {
			t.Errorf("got %v", err)
		}
	}
	bad := campaign(epoch)
	bad.GPU = "H\x1b200"
	if _, err := d.BeginInstructions(ctx, bad); !errors.Is(err, measure.ErrText) {
		t.Errorf("got %v", err)
	}
}
