package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/freeport"
)

// The soak runs monitor and host for as long as asked, on a meter and a card in software: captures back to back
// at 100 kS/s of six channels, with faults in every second one. It records memory, descriptors, goroutines and disk,
// compares every energy with the energy that the card really drew, and fails where something is not as it should be.
//
//	go test ./cmd/trial -v -run Soak -timeout 0 -for 10m -wattmark bin/wattmark -out bin/soak
//
// It writes samples.csv, captures.csv, soak.svg, verdict.txt and stacks of goroutines. Without -for only the short tests of the verdict and
// the cable run.

// soakOptions are the settings of a soak.
type soakOptions struct {
	program, bench, out string
	length              time.Duration // of the whole
	capture, long       time.Duration // of one piece of work, and of some
	sample              time.Duration // how often processes are looked at
	settle              time.Duration // until when memory may grow
	faults              bool
}

// soakFlags is the command line.
var soakFlags soakOptions

func init() {
	o := &soakFlags
	flag.StringVar(&o.bench, "benchfile", "docs/benches/ni-usb6259.yaml",
		"bench file of an NI device, whose address is replaced")
	flag.StringVar(&o.out, "out", "bin/soak", "folder of the results; it is created")
	flag.DurationVar(&o.length, "for", 0, "length of the whole; no soak when 0")
	flag.DurationVar(&o.capture, "capture", 10*time.Second, "length of the work of one capture")
	flag.DurationVar(&o.long, "long", 0, "length of the work of every eighth capture, where it is more")
	flag.DurationVar(&o.sample, "sample", 2*time.Second, "time between two looks at memory, descriptors and disk")
	flag.DurationVar(&o.settle, "settle", 2*time.Minute, "time from which memory and descriptors must stay")
	flag.BoolVar(&o.faults, "faults", true, "cut lines, unplug the meter, kill programs in every second capture")
}

// TestSoak runs for as long as -for asks. SIGINT and SIGTERM end it, and the programs that it started.
func TestSoak(t *testing.T) {
	if soakFlags.length == 0 {
		t.Skip("-for gives its length")
	}
	o := soakFlags
	o.program = cmp.Or(*wattmark, "bin/wattmark")
	for _, p := range []*string{&o.program, &o.bench, &o.out} {
		*p = Path(*p)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good, err := soak(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if !good {
		t.Error("something is not as it should be: see the verdict")
	}
}

// soak runs it all and reports.
func soak(ctx context.Context, o soakOptions) (good bool, err error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return false, err
	}
	l, err := newLab(o)
	if err != nil {
		return false, err
	}
	defer l.close()
	if err := l.start(ctx); err != nil {
		return false, err
	}
	watch := l.watch(ctx)
	if err := l.capturesUntil(ctx, l.begun.Add(o.length)); err != nil {
		return false, fmt.Errorf("%w; the programs' logs are in %s", err, l.dir)
	}
	l.finish(ctx)
	samples := watch()
	if err := writeAll(o.out, samples, l.captures); err != nil {
		return false, err
	}
	v := judge(samples, l.captures, o.settle)
	v.Leftover = l.leftover
	l.keep = !v.good()
	fmt.Print(v.text(o))
	return v.good(), os.WriteFile(o.out+"/verdict.txt", []byte(v.text(o)), 0o644)
}

// program is one that can be started anew while another goroutine looks at it.
type program struct {
	log     string
	args    []string
	address string // at which it listens
	now     atomic.Pointer[Process]
}

// start starts it, and waits until it listens.
func (p *program) start(ctx context.Context) error {
	q, err := Start(exec.Command(p.args[0], p.args[1:]...), p.log)
	if err != nil {
		return err
	}
	p.now.Store(q)
	return q.AwaitPort(ctx, p.address)
}

func (p *program) end(sig os.Signal) {
	if q := p.now.Load(); q != nil {
		q.Stop(sig)
	}
}

// lab is a soak's setup: a card and a meter in software, a monitor, a host, and cables between them that can be cut.
type lab struct {
	o     soakOptions
	dir   string // scratch
	begun time.Time

	meter, monitor, host  *program
	meterLine, hostLine   *soakCable
	monitorHTTP, hostHTTP string

	captures []soakCapture
	leftover int  // unfinished tasks
	keep     bool // the scratch, to look at; until the verdict is good
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// keepSize is the size of old tasks that the host keeps, so that the disk is flat too.
const keepSize = "300MB"

func newLab(o soakOptions) (*lab, error) {
	dir, err := os.MkdirTemp("", "wattmark-soak-")
	if err != nil {
		return nil, err
	}
	l := &lab{o: o, dir: dir, keep: true}
	var meter, monitor, host string
	for _, a := range []*string{&l.monitorHTTP, &l.hostHTTP, &meter, &monitor, &host} {
		if *a, err = freeport.Address(); err != nil {
			return nil, err
		}
	}
	prepare := func(name, address string, args ...string) *program {
		return &program{log: l.path(name + ".log"), address: address, args: append([]string{o.program}, args...)}
	}
	l.meter = prepare("meter", meter, "emulate", "nidaqmx", "--listen", meter, "--gpu", l.path("gpu"), "--imperfect")
	l.monitor = prepare("monitor", monitor, "monitor", "--bench", l.path("bench.yaml"), "--listen", monitor,
		"--spool", l.path("spool"), "--http", l.monitorHTTP, "--pprof", "--spool-quota", "2GB")
	l.host = prepare("host", host, "host", "--db", l.path("power.db"), "--listen", host, "--http", l.hostHTTP, "--pprof",
		"--socket", l.path("host.sock"), "--monitor", monitor, "--recover-every", "5s", "--retain-keep-size", keepSize,
		"--retain-every", "1m")
	var errs [2]error
	l.meterLine, errs[0] = newSoakCable(meter)
	l.hostLine, errs[1] = newSoakCable(monitor)
	return l, errors.Join(errs[:]...)
}

var benchAddress = regexp.MustCompile(`tcp:[0-9.]+:[0-9]+`)

// start brings up all programs.
func (l *lab) start(ctx context.Context) error {
	text, err := os.ReadFile(l.o.bench)
	if err != nil {
		return err
	}
	text = benchAddress.ReplaceAll(text, []byte("tcp:"+l.meterLine.address()))
	if err := os.WriteFile(l.path("bench.yaml"), text, 0o644); err != nil { // #nosec G703 -- a folder that the user names
		return err
	}
	for _, p := range []*program{l.meter, l.monitor, l.host} {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	l.begun = time.Now()
	return nil
}

// restartHost kills the host daemon and starts it again, as a service manager does.
func (l *lab) restartHost(ctx context.Context) error {
	l.host.end(syscall.SIGKILL)
	return l.host.start(ctx)
}

// close stops all, and removes the scratch where all went well.
func (l *lab) close() {
	for _, p := range []*program{l.host, l.monitor, l.meter} {
		if p != nil {
			p.end(syscall.SIGTERM)
		}
	}
	for _, p := range []*soakCable{l.meterLine, l.hostLine} {
		if p != nil {
			p.close()
		}
	}
	if !l.keep {
		_ = os.RemoveAll(l.dir)
		return
	}
	fmt.Fprintln(os.Stderr, "soak: logs, spool and database are left in", l.dir)
}

// soakFault is a fault of the lab in the middle of a capture.
type soakFault string

const (
	none     soakFault = "none"
	cutLine  soakFault = "line to the monitor cut"
	killHost soakFault = "host daemon killed"
	unplug   soakFault = "meter unplugged for 2 s"
	killRun  soakFault = "measuring program killed"
)

// soakFaults come in this order, a capture without any before each.
var soakFaults = []soakFault{cutLine, killHost, unplug, killRun}

// longEvery is how many captures there are to a long one, in which the meter's
// clock has time to wander. It is even: a long one meets no fault.
const longEvery = 8

// soakCapture is one piece of work and its result.
type soakCapture struct {
	At      time.Duration // since the soak began
	Length  time.Duration // of its work
	Fault   soakFault
	Task    int64  // 0 where the program was killed
	State   string // in the database
	Reason  string
	Stored  int64 // scans
	Lost    int64 // scans
	EnergyJ float64
	UJ      float64
	TruthJ  float64
	Wall    time.Duration
	Failure string // why there is no result
}

// inside reports whether the energy is right within its uncertainty.
func (c *soakCapture) inside() bool { return c.EnergyJ > 0 && abs(c.EnergyJ-c.TruthJ) <= c.UJ }

func abs(x float64) float64 { return max(x, -x) }

// capturesUntil measures back to back.
func (l *lab) capturesUntil(ctx context.Context, until time.Time) error {
	for i := 0; time.Now().Before(until); i++ {
		f := none
		if l.o.faults && i%2 == 1 {
			f = soakFaults[i/2%len(soakFaults)]
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

// soakPatience is how long one capture may take beyond its work: a killed holder's
// lease ends after half a minute.
const soakPatience = 3 * time.Minute

func (l *lab) measure(ctx context.Context, f soakFault, length time.Duration) soakCapture {
	c := soakCapture{At: time.Since(l.begun), Fault: f, Length: length}
	ctx, cancel := context.WithTimeout(ctx, length+soakPatience)
	defer cancel()
	begun := time.Now()
	works := []string{"half", "memory", "compute"}
	out, killed, err := run(ctx, func(kill func()) { l.inflict(ctx, f, kill) },
		l.o.program, "run", "--gpu", "sim:"+l.path("gpu"), "--benchmark", works[len(l.captures)%len(works)], "--duration",
		length.String(),
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
		c.Failure = fmt.Sprintf("no result: %v", cmp.Or(err, jerr))
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
func (l *lab) inflict(ctx context.Context, f soakFault, kill func()) {
	if f == none {
		return
	}
	Wait(ctx, l.o.capture/2+500*time.Millisecond)
	switch f {
	case cutLine:
		l.hostLine.cut(false)
	case killHost:
		if err := l.restartHost(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
		}
	case unplug:
		l.meterLine.cut(true)
		Wait(ctx, 2*time.Second)
		l.meterLine.plug()
	case killRun:
		kill()
	}
}

// truth asks the emulator for the energy that the card drew, in joules.
func (l *lab) truth(ctx context.Context, task int64) (float64, error) {
	out, _, err := run(ctx, nil, l.o.program, "emulate", "truth", strconv.FormatInt(task, 10), "--gpu", l.path("gpu"),
		"--db", l.path("power.db"), "--json")
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

// finish waits up to a minute for the host to finish tasks of killed programs, and counts those that are still open.
func (l *lab) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		out, _, err := run(ctx, nil, l.o.program, "tasks", "--db", l.path("power.db"), "--json", "--limit", "1000000")
		l.leftover = bytes.Count(out, []byte(`"state": "running"`))
		if err == nil && l.leftover == 0 || ctx.Err() != nil {
			return
		}
		Wait(ctx, time.Second)
	}
}

// run runs a program to its end and returns its output. The function during runs beside it, and may kill it.
func run(ctx context.Context, during func(kill func()), args ...string) (out []byte, killed bool, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var side sync.WaitGroup
	if during != nil {
		side.Go(func() {
			during(func() {
				killed = true
				_ = cmd.Process.Signal(syscall.SIGKILL)
			})
		})
	}
	out, err = cmd.Output()
	side.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, lastLine(exit.Stderr))
	}
	return out, killed, err
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
