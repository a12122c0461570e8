package predict

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"wattmark/measure"
)

// Reading is one power reading of a trace.
type Reading struct {
	At     measure.Seconds
	Power  measure.Watt
	PState string // "P0" to "P15"; empty where the trace has none
}

// Trace is a power trace of one launch, in order of time.
type Trace struct {
	Name     string
	Readings []Reading
	// Dropped counts readings of other performance states.
	Dropped int
}

// ReadTrace reads a power trace: CSV with time_s, power_w and maybe pstate, or
// what nvidia-smi --query-gpu=timestamp,power.draw,pstate --format=csv writes.
func ReadTrace(r io.Reader, name string) (*Trace, error) {
	b := bufio.NewReader(r)
	head, _ := b.Peek(512)
	first, _, _ := strings.Cut(string(head), "\n")
	must := []string{"time_s", "power_w"}
	smi := strings.Contains(first, "power.draw")
	if smi {
		must = []string{"timestamp", smiColumn(first)}
	}
	rows, err := newReader(b, name, must, append(slices.Clone(must), "pstate"))
	if err != nil {
		return nil, err
	}
	t := &Trace{Name: name}
	var began time.Time // seconds count from here, so that milliseconds stay exact
	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		x := Reading{PState: strings.ToUpper(row.text("pstate"))}
		if smi {
			err = x.fromSMI(row, must[1], &began)
		} else {
			err = errors.Join(row.number("time_s", (*float64)(&x.At)), row.number("power_w", (*float64)(&x.Power)))
		}
		if n := len(t.Readings); err == nil && n > 0 && x.At <= t.Readings[n-1].At {
			err = fmt.Errorf("%w: the time does not go on from %v s to %v s", ErrFormat, float64(t.Readings[n-1].At), float64(x.At))
		}
		if err == nil && x.Power < 0 {
			err = fmt.Errorf("%w: a power of %v W", ErrFormat, float64(x.Power))
		}
		if err != nil {
			return nil, row.wrap(err)
		}
		t.Readings = append(t.Readings, x)
	}
	if len(t.Readings) < 2 {
		return nil, fmt.Errorf("%s: %w: %d readings: two are needed at least", name, ErrFormat, len(t.Readings))
	}
	return t, nil
}

// smiColumn is nvidia-smi's power column, as newReader names it.
func smiColumn(header string) string {
	for _, h := range strings.Split(header, ",") {
		h = strings.ToLower(strings.TrimSpace(h))
		if strings.HasPrefix(h, "power.draw") {
			return h
		}
	}
	return "power.draw"
}

func (x *Reading) fromSMI(r row, column string, began *time.Time) error {
	at, err := time.Parse("2006/01/02 15:04:05.000", r.text("timestamp"))
	if err != nil {
		return fmt.Errorf("%w: timestamp %q: want 2026/01/31 15:04:05.000", ErrFormat, r.text("timestamp"))
	}
	w, err := strconv.ParseFloat(strings.TrimSuffix(r.text(column), " W"), 64)
	if err != nil || math.IsNaN(w) || math.IsInf(w, 0) {
		return fmt.Errorf("%w: power %q: want a number of watts", ErrFormat, r.text(column))
	}
	if began.IsZero() {
		*began = at
	}
	x.At, x.Power = measure.SecondsOf(at.Sub(*began)), measure.Watt(w)
	return nil
}

// Busy returns the readings in performance state P0, which the paper takes for
// the GPU at work; all of a trace that tells no states. They need persistence
// mode: without it nvidia-smi itself wakes the GPU into P0.
func (t *Trace) Busy() *Trace {
	out := &Trace{Name: t.Name}
	for _, r := range t.Readings {
		if r.PState == "" || r.PState == "P0" {
			out.Readings = append(out.Readings, r)
		}
	}
	out.Dropped = len(t.Readings) - len(out.Readings)
	return out
}

// Period is the median distance of the readings.
func (t *Trace) Period() measure.Seconds {
	var d []measure.Seconds
	for i := 1; i < len(t.Readings); i++ {
		d = append(d, t.Readings[i].At-t.Readings[i-1].At)
	}
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// Mean is the mean power of the readings.
func (t *Trace) Mean() measure.Watt {
	var sum float64
	for _, r := range t.Readings {
		sum += float64(r.Power)
	}
	return measure.Watt(sum / float64(len(t.Readings)))
}

// Point makes a calibration point of a trace: T is the readings times their
// period, E the sum of their powers times the period (section IV-C; the dynamic
// energy is then E − P_s·T).
func (t *Trace) Point(blocks uint64) (Point, error) {
	if len(t.Readings) < 2 {
		return Point{}, fmt.Errorf("%w: %s: %d readings in P0 (%d in other states): record a longer launch, or a trace without the column pstate", ErrPoints, t.Name, len(t.Readings), t.Dropped)
	}
	period := t.Period()
	span := measure.Seconds(float64(period) * float64(len(t.Readings)))
	p := Point{Blocks: blocks, Time: span, Energy: measure.Joule(float64(t.Mean()) * float64(span)), From: t.Name}
	return p, p.Validate()
}
