package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

// fault is what is done to the lab in the midst of a capture.
type fault string

const (
	none     fault = "none"
	cutLine  fault = "line to the monitor cut"
	killHost fault = "host daemon killed"
	unplug   fault = "meter unplugged for 2 s"
	killRun  fault = "measuring program killed"
)

// faults come in this order, a capture without any before each.
var faults = []fault{cutLine, killHost, unplug, killRun}

// longEvery is how many captures there are to a long one, in which the meter's
// clock has time to wander. It is even: a long one meets no fault.
const longEvery = 8

// capture is one piece of work and what came of it.
type capture struct {
	At      time.Duration // since the soak began
	Length  time.Duration // of its work
	Fault   fault
	Task    int64  // 0 where the program was killed
	State   string // as the database says
	Reason  string
	Stored  int64 // scans
	Lost    int64 // scans
	EnergyJ float64
	UJ      float64
	TruthJ  float64
	Wall    time.Duration
	Failure string // why there is no result
}

// inside tells whether the energy is right within its uncertainty.
func (c *capture) inside() bool { return c.EnergyJ > 0 && abs(c.EnergyJ-c.TruthJ) <= c.UJ }

func abs(x float64) float64 { return max(x, -x) }

// capturesUntil measures back to back.
func (l *lab) capturesUntil(ctx context.Context, until time.Time) error {
	for i := 0; time.Now().Before(until); i++ {
		f := none
		if l.o.faults && i%2 == 1 {
			f = faults[i/2%len(faults)]
		}
		length := l.o.capture
		if i%longEvery == longEvery/2 {
			length = max(length, l.o.long)
		}
		c := l.measure(ctx, f, length)
		if err := ctx.Err(); err != nil {
			return err
		}
		l.captures = append(l.captures, c)
		fmt.Fprintf(os.Stderr, "%7.1f s  task %d %s, %d scans, %d lost, %.3f J ± %.3f J, truth %.3f J  [%s] %s%s\n",
			c.At.Seconds(), c.Task, c.State, c.Stored, c.Lost, c.EnergyJ, c.UJ, c.TruthJ, c.Fault, c.Reason, c.Failure)
	}
	return nil
}

// patience is how long one capture may take beyond its work: a killed holder's
// lease ends after half a minute.
const patience = 3 * time.Minute

func (l *lab) measure(ctx context.Context, f fault, length time.Duration) capture {
	c := capture{At: time.Since(l.begun), Fault: f, Length: length}
	ctx, cancel := context.WithTimeout(ctx, length+patience)
	defer cancel()
	begun := time.Now()
	works := []string{"half", "memory", "compute"}
	out, killed, err := run(ctx, func(kill func()) { l.inflict(ctx, f, kill) },
		l.o.program, "run", "--gpu", "sim:"+l.path("gpu"), "--benchmark", works[len(l.captures)%len(works)], "--duration", length.String(),
		"--monitor", l.hostLine.address(), "--db", l.path("power.db"), "--no-nvml", "--no-methods", "--wait", "2m", "--json")
	c.Wall = time.Since(begun)
	if killed {
		c.State = "killed"
		return c
	}
	var r struct {
		Task   int64   `json:"task_id"`
		State  string  `json:"state"`
		Reason string  `json:"reason"`
		E      float64 `json:"energy_j"`
		U      float64 `json:"energy_u_j"`
		Stored int64   `json:"samples_stored"`
		Lost   int64   `json:"samples_lost"`
	}
	if jerr := json.Unmarshal(out, &r); jerr != nil {
		c.Failure = fmt.Sprintf("no result: %v", firstOf(err, jerr))
		return c
	}
	c.Task, c.State, c.Reason, c.EnergyJ, c.UJ, c.Stored, c.Lost = r.Task, r.State, r.Reason, r.E, r.U, r.Stored, r.Lost
	if r.E > 0 {
		c.TruthJ, err = l.truth(ctx, r.Task)
		if err != nil {
			c.Failure = err.Error()
		}
	}
	return c
}

// inflict does its harm in the middle of the work.
func (l *lab) inflict(ctx context.Context, f fault, kill func()) {
	if f == none {
		return
	}
	wait(ctx, l.o.capture/2+500*time.Millisecond)
	switch f {
	case cutLine:
		l.hostLine.cut(false)
	case killHost:
		if err := l.restartHost(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
		}
	case unplug:
		l.meterLine.cut(true)
		wait(ctx, 2*time.Second)
		l.meterLine.plug()
	case killRun:
		kill()
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// truth asks the emulator what the card drew.
func (l *lab) truth(ctx context.Context, task int64) (float64, error) {
	out, _, err := run(ctx, nil, l.o.program, "emulate", "truth", strconv.FormatInt(task, 10), "--gpu", l.path("gpu"), "--db", l.path("power.db"), "--json")
	var r struct {
		Truth float64 `json:"truth_j"`
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		return 0, fmt.Errorf("truth of task %d: %w", task, err)
	}
	return r.Truth, nil
}

// finish waits for the host to finish what killed programs left, and counts what
// is still open then.
func (l *lab) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		out, _, err := run(ctx, nil, l.o.program, "tasks", "--db", l.path("power.db"), "--json", "--limit", "1000000")
		l.leftover = bytes.Count(out, []byte(`"state": "running"`))
		if err == nil && l.leftover == 0 || ctx.Err() != nil {
			return
		}
		wait(ctx, time.Second)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
