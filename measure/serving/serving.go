// Package serving holds the windows of a server's work inside a long capture: a stage of a request, with what it
// counted. A window begins and ends on the host's clock. Windows overlap, as requests are batched: at each instant
// the power belongs in equal shares to the windows that are open then, so that their energies come to no more than
// the card's.
//
//	program ──JSON lines──▶ Read ──▶ []Window ──energies by the task's samples──▶ Summarise ──▶ []Line
package serving

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/measure"
)

// Env names the folder in which a program that is measured writes its windows, a file *.jsonl for each process.
const Env = "WATTMARK_WINDOWS"

// Kind is the kind of the analyses that hold the windows of a task; their name is the task's number. Each version
// holds more of them.
const Kind = "windows"

// Bounds of what is read.
const (
	Most     = 1_000_000 // windows of a task
	longName = 200       // bytes of a name
	manyKeys = 16        // counts of a window
)

// ErrWindow: a window that cannot be; the error has its line.
var ErrWindow = errors.New("not a window")

// Window is a stage of a request, or all of it.
type Window struct {
	ID    string `json:"id"` // the request's; its stages share it
	Stage string `json:"stage,omitempty"`
	Class string `json:"class,omitempty"`
	// Begin and End are on the host's clock, in ns since 1970.
	Begin int64 `json:"begin_ns"`
	End   int64 `json:"end_ns"`
	// Counts are what was done in it: tokens, requests.
	Counts map[string]float64 `json:"counts,omitempty"`
	// Marks is for how long of it markers were played to relate the clocks: that time is not in Share.
	Marks measure.Seconds `json:"marks_s,omitempty"`
	// Settled: its energy was computed while the capture ran, and is not computed again.
	Settled bool `json:"settled,omitempty"`
	// Share is its share of the card's energy; nil where the samples do not reach over it.
	*measure.Share
}

// Check returns an ErrWindow for a window that ends before it begins, or of names and counts out of bounds.
func (w *Window) Check() error {
	for what, s := range map[string]string{"id": w.ID, "stage": w.Stage, "class": w.Class} {
		if len(s) > longName || measure.Printable(s) != s {
			return fmt.Errorf("%w: its %s is longer than %d bytes, or not printable", ErrWindow, what, longName)
		}
	}
	switch {
	case w.Begin <= 0:
		return fmt.Errorf("%w: it has no begin_ns", ErrWindow)
	case w.End <= w.Begin:
		return fmt.Errorf("%w: it never ended, or before it began", ErrWindow)
	case len(w.Counts) > manyKeys:
		return fmt.Errorf("%w: %d counts, want at most %d", ErrWindow, len(w.Counts), manyKeys)
	}
	for name, n := range w.Counts {
		if !(n >= 0) || math.IsInf(n, 0) || name == "" || len(name) > longName || measure.Printable(name) != name {
			return fmt.Errorf("%w: its count %q is %v", ErrWindow, measure.Printable(name), n)
		}
	}
	return nil
}

// Read reads windows, a JSON object a line, of at most 64 KiB. Those that cannot be are left out, and refused has the
// first one's line and fault, and how many there are. A last line without its end is one of them. Errors are those of
// r.
func Read(r io.Reader) (out []Window, refused error, err error) {
	in, faults := bufio.NewReaderSize(r, 1<<16), 0
	for line := 1; ; line++ {
		text, err := in.ReadSlice('\n')
		w, fault := parse(text)
		for errors.Is(err, bufio.ErrBufferFull) {
			fault = fmt.Errorf("%w: a line of more than 64 KiB", ErrWindow)
			_, err = in.ReadSlice('\n')
		}
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return out, refused, err
		case fault == nil && w != nil && len(out) == Most:
			fault = fmt.Errorf("%w: more than %d", ErrWindow, Most)
		case fault == nil && w != nil:
			out = append(out, *w)
		}
		if fault != nil {
			if faults++; faults == 1 {
				refused = fmt.Errorf("line %d: %w", line, fault)
			}
		}
		if err != nil {
			if faults > 1 {
				refused = fmt.Errorf("%w, and %d more", refused, faults-1)
			}
			return out, refused, nil
		}
	}
}

// parse returns the window of a line, nil for an empty one.
func parse(line []byte) (*Window, error) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil, nil
	}
	w := &Window{}
	err := json.Unmarshal(line, w)
	w.Share, w.Marks, w.Settled = nil, 0, false
	if err == nil {
		err = w.Check()
	}
	return w, err
}

// Line sums up the windows of one class and stage. Windows without energy count in Unknown alone.
type Line struct {
	Class string `json:"class,omitempty"`
	Stage string `json:"stage,omitempty"` // empty for whole requests, where they have stages
	// Windows counts those with energy, Unknown those without: the capture does not reach over them.
	Windows int             `json:"windows"`
	Unknown int             `json:"windows_without_energy,omitempty"`
	Time    measure.Seconds `json:"time_s"` // sum of their lengths
	// Estimate is the sum of their energies.
	measure.Estimate
	// P50, P90 and P99 are quantiles of the energies of the windows.
	P50 measure.Joule `json:"p50_j"`
	P90 measure.Joule `json:"p90_j"`
	P99 measure.Joule `json:"p99_j"`
	// Per is by what was counted.
	Per []Per `json:"per,omitempty"`
}

// Per is energy by a unit of work: the energies of the windows that counted it, over the sum of their counts.
type Per struct {
	Unit             string  `json:"unit"`
	Count            float64 `json:"count"`
	measure.Estimate         // of one
}

// Summarise sums windows up by class and stage, and by class over whole requests, where those have several
// windows. Lines are in the order of class and stage.
func Summarise(windows []Window) []Line {
	type key struct{ class, stage string }
	sums, stages := map[key][]Window{}, map[string]bool{}
	requests := map[[2]string]int{} // by class and id
	var whole []Window
	for i := range windows {
		w := &windows[i]
		sums[key{w.Class, w.Stage}] = append(sums[key{w.Class, w.Stage}], *w)
		stages[w.Class] = stages[w.Class] || w.Stage != ""
		at, ok := requests[[2]string{w.Class, w.ID}]
		if !ok || w.ID == "" {
			requests[[2]string{w.Class, w.ID}] = len(whole)
			whole = append(whole, Window{Class: w.Class, Share: &measure.Share{}, Counts: map[string]float64{}})
			at = len(whole) - 1
		}
		whole[at].join(w)
	}
	for class, any := range stages {
		if any { // its windows without a stage are in its requests
			delete(sums, key{class, ""})
		}
	}
	for i := range whole {
		if k := (key{whole[i].Class, ""}); stages[k.class] {
			sums[k] = append(sums[k], whole[i])
		}
	}
	var out []Line
	for k, ws := range sums {
		out = append(out, lineOf(k.class, k.stage, ws))
	}
	slices.SortFunc(out, func(a, b Line) int { return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Stage, b.Stage)) })
	return out
}

// join adds a stage to a request, whose End is the sum of lengths. One stage without energy takes the request's.
func (w *Window) join(stage *Window) {
	w.End += stage.End - stage.Begin
	if stage.Share == nil {
		w.Share = nil
	}
	if w.Share != nil {
		w.Add(stage.Share)
	}
	for unit, n := range stage.Counts {
		w.Counts[unit] += n
	}
}

func lineOf(class, stage string, ws []Window) Line {
	l := Line{Class: class, Stage: stage}
	var energies []float64
	var sum measure.Share
	per := map[string]*measure.Share{}
	counts := map[string]float64{}
	for i := range ws {
		w := &ws[i]
		if w.Share == nil {
			l.Unknown++
			continue
		}
		l.Windows++
		l.Time += measure.Seconds(w.End-w.Begin) * 1e-9
		sum.Add(w.Share)
		energies = append(energies, float64(w.Energy))
		for unit, n := range w.Counts {
			if per[unit] == nil {
				per[unit] = &measure.Share{}
			}
			per[unit].Add(w.Share)
			counts[unit] += n
		}
	}
	l.Estimate = sum.Estimate
	sort.Float64s(energies)
	at := func(q float64) measure.Joule {
		if len(energies) == 0 {
			return measure.Joule(math.NaN())
		}
		return measure.Joule(energies[int(math.Ceil(q*float64(len(energies))))-1])
	}
	l.P50, l.P90, l.P99 = at(0.5), at(0.9), at(0.99)
	for unit, p := range per {
		if n := measure.Joule(counts[unit]); n > 0 {
			l.Per = append(l.Per, Per{unit, float64(n), measure.Estimate{Energy: p.Energy / n, U: p.U / n}})
		}
	}
	slices.SortFunc(l.Per, func(a, b Per) int { return cmp.Compare(a.Unit, b.Unit) })
	return l
}

// The names by which a benchmark of a server is summed up: windows of the class WarmUp are not of it, and its tokens
// are counted under these units.
const (
	WarmUp = "warm-up"
	Input  = "prompt_tokens"
	Output = "tokens"
)

// Served sums up a server's work from the begin of its first window to the end of its last one, in the fields
// of InferenceX's results (its aggregate_power.py, schema 2), beside energy_u_j.
type Served struct {
	Schema int   `json:"power_metric_schema_version"`
	Begin  int64 `json:"begin_ns"` // on the host's clock, since 1970
	End    int64 `json:"end_ns"`
	// Requests counts the requests by class and id, each window without an id as one. Input and Output are their
	// tokens.
	Requests int     `json:"completed"`
	Input    float64 `json:"total_input_tokens"`
	Output   float64 `json:"total_output_tokens"`
	// Valid is 1, or 0 for Reasons: then there is no Power.
	Valid   int      `json:"power_valid"`
	Reasons []string `json:"power_invalid_reasons,omitempty"`
	*Power
}

// Power is the card's energy over that time, idle time included, and its mean by request and token: null where there
// was none. One GPU is a task's, so both mean powers are its own.
type Power struct {
	Mean    measure.Watt  `json:"avg_power_w"`
	All     measure.Watt  `json:"avg_total_gpu_power_w"`
	Energy  measure.Joule `json:"total_gpu_energy_j"`
	U       measure.Joule `json:"energy_u_j"` // k = 2
	Request measure.Joule `json:"joules_per_successful_query"`
	Input   measure.Joule `json:"joules_per_input_token"`
	Output  measure.Joule `json:"joules_per_output_token"`
	Token   measure.Joule `json:"joules_per_total_token"`
}

// Serve sums up a server's windows, without energy, which Took sets. It is nil without windows.
func Serve(windows []Window) *Served {
	s := &Served{Schema: 2, Begin: math.MaxInt64}
	requests := map[[2]string]bool{}
	for i := range windows {
		w := &windows[i]
		if w.Class == WarmUp {
			continue
		}
		s.Begin, s.End = min(s.Begin, w.Begin), max(s.End, w.End)
		s.Input += w.Counts[Input]
		s.Output += w.Counts[Output]
		if w.ID == "" {
			s.Requests++
			continue
		}
		requests[[2]string{w.Class, w.ID}] = true
	}
	if s.Requests += len(requests); s.Requests == 0 {
		return nil
	}
	return s
}

// Took sets the energy, its U and the means; where there are reasons against it, only these.
func (s *Served) Took(e measure.Estimate, reasons ...string) {
	if s.Reasons = reasons; len(reasons) > 0 {
		return
	}
	mean := measure.Watt(float64(e.Energy) / (float64(s.End-s.Begin) * 1e-9))
	by := func(n float64) measure.Joule {
		if n == 0 {
			return measure.Joule(math.NaN())
		}
		return e.Energy / measure.Joule(n)
	}
	s.Valid, s.Power = 1, &Power{
		mean, mean, e.Energy, e.U, by(float64(s.Requests)), by(s.Input), by(s.Output), by(s.Input + s.Output),
	}
}
