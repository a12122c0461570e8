package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tolerance is by how much memory and descriptors may differ, as a share.
const tolerance = 0.05

// flatness is how a figure behaved once it had settled: medians of equal spans of
// time, the first of which is what the others are held against.
type flatness struct {
	Name             string
	First, Low, High float64
	Spans            int
	// Slack is by how much it may differ beyond the tolerance, as one descriptor
	// of twelve is more than 5 %.
	Slack float64
	// MayFall: less is no fault.
	MayFall bool
}

// flat tells whether the figure stayed; with fewer than two spans nobody knows.
func (f flatness) flat() bool {
	room := max(tolerance*f.First, f.Slack)
	return f.Spans >= 2 && f.High-f.First <= room && (f.MayFall || f.First-f.Low <= room)
}

// verdict is what a soak came to.
type verdict struct {
	Figures                       []flatness
	Own                           flatness // of the monitor's memory, told beside it
	Captures, Clean, Outside      int
	LostClean, LostTold, Scans    int64
	Killed, Leftover, Failed      int
	WorstOfU                      float64 // largest |error| / U
	WALHigh, SpoolHigh, SpoolLast int64
	Length, Longest               time.Duration // of all, of one capture that was kept whole
	Faults                        map[fault]int
}

// span is how long the figures' medians are taken over, at most: a program that
// was just killed has little.
const span = time.Minute

// judge holds what was seen against what was asked for.
func judge(samples []sample, captures []capture, settle time.Duration) verdict {
	v := verdict{Faults: map[fault]int{}}
	if len(samples) > 0 {
		last := samples[len(samples)-1]
		v.Length, v.SpoolLast = last.At, last.Spool
	}
	rss := settled("monitor: memory, bytes", samples, settle, 0, func(s sample) float64 { return float64(s.Monitor.RSS) })
	v.Own = settled("monitor: memory without pages of files, bytes", samples, settle, 0, func(s sample) float64 { return float64(s.Monitor.Own) })
	// The system takes back pages that are files' as it likes.
	rss.MayFall = v.Own.First-v.Own.Low <= tolerance*v.Own.First
	v.Figures = append(v.Figures, rss)
	for _, f := range []struct {
		name  string
		slack float64
		of    func(sample) float64
	}{
		{"monitor: descriptors", 1, func(s sample) float64 { return float64(s.Monitor.Descriptors) }},
		{"monitor: goroutines", 2, func(s sample) float64 { return float64(s.Monitor.Goroutines) }},
		{"host: descriptors", 1, func(s sample) float64 { return float64(s.Host.Descriptors) }},
		{"host: goroutines", 2, func(s sample) float64 { return float64(s.Host.Goroutines) }},
	} {
		v.Figures = append(v.Figures, settled(f.name, samples, settle, f.slack, f.of))
	}
	for _, s := range samples {
		v.WALHigh, v.SpoolHigh = max(v.WALHigh, s.WAL), max(v.SpoolHigh, s.Spool)
	}
	for i := range captures {
		v.count(&captures[i])
	}
	return v
}

// settled takes the medians of a figure's spans.
func settled(name string, samples []sample, settle time.Duration, slack float64, of func(sample) float64) flatness {
	f := flatness{Name: name, Slack: slack}
	var spans [][]float64
	for _, s := range samples {
		if s.At < settle || of(s) == 0 { // a program that is being started says nothing
			continue
		}
		n := int((s.At - settle) / span)
		for len(spans) <= n {
			spans = append(spans, nil)
		}
		spans[n] = append(spans[n], of(s))
	}
	for _, values := range spans {
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		m := values[len(values)/2]
		if f.Spans == 0 {
			f.First, f.Low, f.High = m, m, m
		}
		f.Low, f.High = min(f.Low, m), max(f.High, m)
		f.Spans++
	}
	return f
}

func (v *verdict) count(c *capture) {
	v.Captures++
	v.Faults[c.Fault]++
	v.Scans += c.Stored
	switch {
	case c.State == "killed":
		v.Killed++
		return
	case c.Failure != "":
		v.Failed++
		return
	case c.Fault == unplug:
		// What the meter could not say is told, and the energy says what it misses.
		v.LostTold += c.Lost
		if c.Lost > 0 || c.State != "complete" {
			return
		}
	default:
		v.LostClean += c.Lost
		v.Clean++
		if c.State != "complete" {
			v.Failed++
			return
		}
	}
	if !c.inside() {
		v.Outside++
	}
	v.Longest = max(v.Longest, c.Length)
	if c.UJ > 0 {
		v.WorstOfU = max(v.WorstOfU, abs(c.EnergyJ-c.TruthJ)/c.UJ)
	}
}

// enough is how many spans a figure needs for a verdict.
func (v *verdict) judged() bool { return len(v.Figures) > 0 && v.Figures[0].Spans >= 2 }

// good tells whether all was as it should be. A soak that ended before anything
// could settle is judged by its samples and energies alone, and says so.
func (v *verdict) good() bool {
	ok := v.Clean > 0 && v.LostClean == 0 && v.Outside == 0 && v.Failed == 0 && v.Leftover == 0
	for _, f := range v.Figures {
		ok = ok && (f.flat() || !v.judged())
	}
	return ok
}

func (v *verdict) text(o options) string {
	var b strings.Builder
	say := func(ok bool, format string, args ...any) {
		mark := "ok  "
		if !ok {
			mark = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %s\n", mark, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "soak of %v: %d captures of %v (the longest of %v), %d scans of six channels kept\n",
		v.Length.Round(time.Second), v.Captures, o.capture, v.Longest, v.Scans)
	for _, f := range append([]fault{none}, faults...) {
		fmt.Fprintf(&b, "      %3d × %s\n", v.Faults[f], f)
	}
	say(v.Failed == 0 && v.Clean > 0, "%d captures whose meter was there gave a complete task, %d did not", v.Clean-v.Failed, v.Failed)
	say(v.LostClean == 0, "%d scans lost in them; %d were lost, and told, while the meter was unplugged", v.LostClean, v.LostTold)
	say(v.Outside == 0, "%d energies outside of their uncertainty; the largest error was %.2f U", v.Outside, v.WorstOfU)
	say(v.Leftover == 0, "%d tasks left unfinished, of %d whose program was killed", v.Leftover, v.Killed)
	for _, f := range v.Figures {
		if !v.judged() {
			fmt.Fprintf(&b, "----  %s: too short to judge (from %v on, by minutes): %.0f\n", f.Name, o.settle, f.First)
			continue
		}
		say(f.flat(), "%s: %.0f, then %.0f to %.0f (%+.1f %% to %+.1f %%), medians of %d minutes from %v on",
			f.Name, f.First, f.Low, f.High, 100*(f.Low/f.First-1), 100*(f.High/f.First-1), f.Spans, o.settle)
	}
	fmt.Fprintf(&b, "      %s: %.0f, then %.0f to %.0f\n", v.Own.Name, v.Own.First, v.Own.Low, v.Own.High)
	fmt.Fprintf(&b, "      the log of the database was %.1f MB at most, the spool %.1f MB, and %.1f MB at the end\n",
		float64(v.WALHigh)/1e6, float64(v.SpoolHigh)/1e6, float64(v.SpoolLast)/1e6)
	return b.String()
}
