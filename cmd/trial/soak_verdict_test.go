package trial

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
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

// flat reports whether the figure stayed; false with fewer than two spans.
func (f flatness) flat() bool {
	room := max(tolerance*f.First, f.Slack)
	return f.Spans >= 2 && f.High-f.First <= room && (f.MayFall || f.First-f.Low <= room)
}

// verdict sums up a soak.
type verdict struct {
	Figures                       []flatness
	Own                           flatness // of the monitor's memory, printed beside it
	Captures, Clean, Outside      int
	LostClean, LostTold, Scans    int64
	Killed, Leftover, Failed      int
	WorstOfU                      float64 // largest |error| / U
	WALHigh, SpoolHigh, SpoolLast int64
	Length, Longest               time.Duration // of all, of one capture that was kept whole
	Faults                        map[soakFault]int
}

// growthSpan is how long the figures' medians are taken over, at most: a program that
// was just killed has little.
const growthSpan = time.Minute

// judge compares samples and captures with the requirements.
func judge(samples []sample, captures []soakCapture, settle time.Duration) verdict {
	v := verdict{Faults: map[soakFault]int{}}
	if len(samples) > 0 {
		last := samples[len(samples)-1]
		v.Length, v.SpoolLast = last.At, last.Spool
	}
	rss := settled("monitor: memory, bytes", samples, settle, 0, func(s sample) float64 { return float64(s.Monitor.RSS) })
	v.Own = settled("monitor: memory without pages of files, bytes", samples, settle, 0,
		func(s sample) float64 { return float64(s.Monitor.Own) })
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
		if s.At < settle || of(s) == 0 { // a program that is being started has no figures
			continue
		}
		n := int((s.At - settle) / growthSpan)
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

func (v *verdict) count(c *soakCapture) {
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
		// Missing scans are recorded, and the task names the missing energy.
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
// could settle is judged by its samples and energies alone; its text reports that.
func (v *verdict) good() bool {
	ok := v.Clean > 0 && v.LostClean == 0 && v.Outside == 0 && v.Failed == 0 && v.Leftover == 0
	for _, f := range v.Figures {
		ok = ok && (f.flat() || !v.judged())
	}
	return ok
}

func (v *verdict) text(o soakOptions) string {
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
	for _, f := range append([]soakFault{none}, soakFaults...) {
		fmt.Fprintf(&b, "      %3d × %s\n", v.Faults[f], f)
	}
	say(v.Failed == 0 && v.Clean > 0, "%d captures whose meter was there gave a complete task, %d did not",
		v.Clean-v.Failed, v.Failed)
	say(v.LostClean == 0, "%d scans lost in them; %d were lost, and told, while the meter was unplugged", v.LostClean,
		v.LostTold)
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

// steady is ten minutes in which nothing happens but captures that are right.
func steady() (samples []sample, captures []soakCapture) {
	for at := time.Duration(0); at < 10*time.Minute; at += 2 * time.Second {
		u := usage{PID: 7, RSS: 100e6, Own: 60e6, Descriptors: 12, Goroutines: 20}
		samples = append(samples, sample{At: at, Monitor: u, Host: u, Meter: u, Spool: 1e6, WAL: 4e6, Database: 3e8})
	}
	for at := time.Duration(0); at < 10*time.Minute; at += 12 * time.Second {
		captures = append(captures, soakCapture{
			At: at, Fault: none, Task: 1, State: "complete", Stored: 1e6, EnergyJ: 100.5,
			UJ: 1, TruthJ: 100,
		})
	}
	return samples, captures
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		good   bool
		change func([]sample, []soakCapture)
	}{
		"steady":                  {true, func([]sample, []soakCapture) {}},
		"grows before it settles": {true, func(s []sample, _ []soakCapture) { s[3].Monitor.RSS = 10e6 }},
		"one descriptor more": {true, func(s []sample,
			_ []soakCapture,
		) {
			lastSample(s, func(x *sample) { x.Monitor.Descriptors++ })
		}},
		"memory grows": {false, func(s []sample,
			_ []soakCapture,
		) {
			lastSample(s, func(x *sample) { x.Monitor.RSS += 6e6 })
		}},
		"pages are taken back": {true, func(s []sample,
			_ []soakCapture,
		) {
			lastSample(s, func(x *sample) { x.Monitor.RSS -= 20e6 })
		}},
		"memory shrinks": {false, func(s []sample, _ []soakCapture) {
			lastSample(s, func(x *sample) { x.Monitor.RSS -= 20e6; x.Monitor.Own -= 20e6 })
		}},
		"descriptors leak": {false, func(s []sample, _ []soakCapture) { lastSample(s, func(x *sample) { x.Host.Descriptors += 2 }) }},
		"goroutines leak":  {false, func(s []sample, _ []soakCapture) { lastSample(s, func(x *sample) { x.Monitor.Goroutines += 3 }) }},
		"a scan is lost":   {false, func(_ []sample, c []soakCapture) { c[4].Lost = 1 }},
		"a scan is lost while unplugged": {true, func(_ []sample, c []soakCapture) {
			c[4].Lost, c[4].Fault, c[4].State, c[4].EnergyJ = 1, unplug, "incomplete", 90
		}},
		"an energy is wrong":  {false, func(_ []sample, c []soakCapture) { c[4].EnergyJ = 101.5 }},
		"no energy":           {false, func(_ []sample, c []soakCapture) { c[4].EnergyJ = 0 }},
		"a task breaks off":   {false, func(_ []sample, c []soakCapture) { c[4].State = "incomplete" }},
		"no result":           {false, func(_ []sample, c []soakCapture) { c[4].Failure = "x" }},
		"a program is killed": {true, func(_ []sample, c []soakCapture) { c[4] = soakCapture{Fault: killRun, State: "killed"} }},
	} {
		samples, captures := steady()
		c.change(samples, captures)
		v := judge(samples, captures, 2*time.Minute)
		text := v.text(soakOptions{settle: 2 * time.Minute})
		if v.good() != c.good || c.good == strings.Contains(text, "FAIL") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	samples, captures := steady()
	v := judge(samples, captures, 2*time.Minute)
	if v.Leftover = 1; v.good() {
		t.Error("a task that is left is good")
	}
	if v := judge(samples, nil, 0); v.good() {
		t.Error("no capture at all is good")
	}
}

// lastSample changes the last minute.
func lastSample(s []sample, change func(*sample)) {
	for i := len(s) - 30; i < len(s); i++ {
		change(&s[i])
	}
}

func TestWriteAll(t *testing.T) {
	dir := t.TempDir()
	samples, captures := steady()
	if err := writeAll(dir, samples, captures); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"samples.csv": "monitor_rss_bytes", "captures.csv": "truth_j",
		"soak.svg": "memory, MB",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// soakCable is a line between TCP clients and a server that can be cut. Its methods may be called from any goroutine.
type soakCable struct {
	listener net.Listener
	to       string

	mu        sync.Mutex
	unplugged bool
	conns     map[net.Conn]bool
}

// newSoakCable listens on the loopback and passes connections on to an address until close.
func newSoakCable(to string) (*soakCable, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &soakCable{listener: l, to: to, conns: map[net.Conn]bool{}}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go p.pass(c)
		}
	}()
	return p, nil
}

// address returns the clients' end of the line.
func (l *soakCable) address() string { return l.listener.Addr().String() }

// pass copies bytes both ways until either side closes.
func (l *soakCable) pass(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer up.Close()
	l.mu.Lock()
	if l.unplugged {
		l.mu.Unlock()
		return
	}
	l.conns[c], l.conns[up] = true, true
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	delete(l.conns, up)
}

// cut closes all connections. With unplug, no new one is passed on until plug.
func (l *soakCable) cut(unplug bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unplugged = unplug
	for c := range l.conns {
		_ = c.Close()
	}
}

// plug lets new connections through again.
func (l *soakCable) plug() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unplugged = false
}

// close closes the line and all that is connected by it.
func (l *soakCable) close() {
	_ = l.listener.Close()
	l.cut(true)
}

// A line passes bytes both ways until it is cut, and again once it is plugged in.
func TestCable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	p, err := newSoakCable(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	echo := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write([]byte("x")) // a failure shows in the read
		b := make([]byte, 1)
		_, err = io.ReadFull(c, b)
		return c, err == nil
	}
	c, ok := echo()
	if !ok {
		t.Fatal("nothing comes through")
	}
	p.cut(true)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it was not cut")
	}
	if _, ok := echo(); ok {
		t.Error("it passes while unplugged")
	}
	p.plug()
	if _, ok := echo(); !ok {
		t.Error("nothing comes through again")
	}
}
