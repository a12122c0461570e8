package store

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

func campaign(at time.Time) InstructionCampaign {
	return InstructionCampaign{
		GPU: "H200", GPUUUID: "GPU-1", Driver: "580", Started: at, Seed: math.MaxUint64 - 1, Host: "lab", Version: "0.1.0",
	}
}

func someRuns() []InstructionRun {
	return []InstructionRun{
		{Instruction: "idle", Layout: "one-thread", Time: 0.3, Reads: 4e5, Power: map[string]measure.Watt{"sma": 125.5, "instant": 126}},
		{
			Pass: 1, Instruction: "div.rn.f64", Layout: "whole-gpu", Level: 3, Steps: 200, Block: true, Base: "ab", Turns: 1e6, Threads: 270336,
			Time: 0.41, Cycles: 1 << 40, X: 1<<63 | 5, Checked: true, Reads: 5e5, SM: 1.98e9, Celsius: 41, Power: map[string]measure.Watt{"mtsm": 410.25},
		},
		{Instruction: "add.bf16", Layout: "one-thread", Error: "no such instruction"},
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
