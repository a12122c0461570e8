package trial

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/internal/freeport"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
	"github.com/wattmark/wattmark/store"
)

// bench is a measurement of real processes, and its files.
type bench struct {
	dir, program string
}

// start starts a program, under strace where it is traced, and returns the process that
// does the work and what waits for its end.
func (b *bench) start(t *testing.T, traceAs string, args ...string) (*exec.Cmd, func() error) {
	t.Helper()
	if args = append([]string{b.program}, args...); traceAs != "" {
		args = append([]string{
			"strace", "-ff", "--seccomp-bpf", "-y", "-qq", "-ttt", "-T", "-xx", "-s", "100000000",
			"-e", "trace=" + traced, "-e", "signal=none", "-o", filepath.Join(b.dir, "trace", traceAs),
		}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	out, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("out%d", time.Now().UnixNano())))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if c.Stdout, c.Stderr = out, out; c.Start() != nil {
		t.Skipf("%s cannot be started", args[0])
	}
	var once sync.Once
	wait := func() (err error) { once.Do(func() { err = c.Wait() }); return err }
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = wait()
	})
	return c, wait
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !f(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come", what)
		}
	}
}

// recordCalls measures once, and returns the calls of monitor and run.
func recordCalls(t *testing.T) (base string, calls []call) {
	if _, err := exec.LookPath("strace"); err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("strace (Debian package strace) is not installed: %v", err)
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(base, name) }
	for _, name := range []string{"spool", "db", "trace"} {
		if err := os.Mkdir(in(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{dir: base, program: in("wattmark")}
	address, err := freeport.Address()
	if err = errors.Join(err, Build(t.Context(), b.program)); err != nil {
		t.Fatal(err)
	}
	b.start(t, "", "emulate", "powersensor3", "--link", in("meter"), "--gpu", in("gpu"))
	until(t, "the meter", func() bool { _, err := os.Stat(in("gpu")); return err == nil })
	m, ended := b.start(t, "monitor", "monitor", "--instrument", "powersensor3", "--port", in("meter"), "--spool",
		in("spool"), "--listen", address)
	until(t, "the monitor", func() bool { c, err := net.Dial("tcp", address); return err == nil && c.Close() == nil })
	_, done := b.start(t, "run", "run", "--gpu", "sim:"+in("gpu"), "--monitor", address, "--db", in("db/power.db"),
		"--warm-up", "50ms", "--benchmark", "memory", "--duration", "300ms", "--no-methods", "--json")
	if err := done(); err != nil {
		t.Fatal(err)
	}
	// strace keeps signals to itself: its child is the monitor.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.Process.Pid))
	pid, perr := strconv.Atoi(strings.TrimSpace(string(children)))
	if err = errors.Join(err, perr); err == nil {
		err = errors.Join(syscall.Kill(pid, syscall.SIGTERM), ended())
	}
	files, gerr := filepath.Glob(in("trace/*"))
	if err = errors.Join(err, gerr); err != nil {
		t.Fatal(err)
	}
	return base, readTrace(t, files, base)
}

// cutPromise is what a cut must leave: what was synced of each log, which captures' stop was
// answered, and whether the run had told its result.
type cutPromise struct {
	logs          map[string][]byte // by capture
	stopped, told bool
}

func (p *cutPromise) take(c *call, d *tree) {
	dir, name := filepath.Split(c.path)
	switch {
	case c.program == "run" && c.name == "write" && !strings.HasPrefix(c.path, d.base+"/db/"):
		p.stopped = p.stopped || strings.Contains(c.text[0], "fetching samples")
		p.told = p.told || strings.Contains(c.text[0], `"task_id"`)
	case c.sync != nil && !c.begins && name == "log":
		p.logs = maps.Clone(p.logs)
		p.logs[filepath.Base(dir)] = c.sync.data
	}
}

// chunksOf are captures' chunks: checksums by number.
type chunksOf map[string]map[uint64]uint32

// loggedChunks are a log's.
func loggedChunks(log []byte) map[uint64]uint32 {
	out := map[uint64]uint32{}
	for len(log) > 0 {
		f, body, rest, err := spool.ParseRecord(log)
		if err != nil {
			break
		}
		if log = rest; f.Type == spool.RecordChunk {
			out[binary.LittleEndian.Uint64(body)] = binary.LittleEndian.Uint32(body[28:])
		}
	}
	return out
}

// gone is a meter that is never opened.
type gone struct{ instrument.Instrument }

func (gone) Open(context.Context) error    { return instrument.ErrDisconnected }
func (gone) Identity() instrument.Identity { return instrument.Identity{Kind: "gone"} }
func (gone) Inputs() instrument.Inputs     { return instrument.Inputs{} }
func (gone) Close() error                  { return nil }

// recovered starts monitor and host on an image, lets the host recover, and says what is
// not as promised.
func recovered(ctx context.Context, dir string, p cutPromise, whole map[string][]byte, final chunksOf) (wrong []string) {
	fail := func(format string, a ...any) { wrong = append(wrong, fmt.Sprintf(format, a...)) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return []string{err.Error()}
	}
	setup := func(instrument.Inputs) (measure.Setup, error) { return measure.Setup{}, instrument.ErrDisconnected }
	m, err := monitor.New(monitor.Config{
		Bench: monitor.Bench{Name: "cut", Instrument: gone{}, Setup: setup},
		Dir:   filepath.Join(dir, "spool"), Listeners: []net.Listener{l},
	})
	if err != nil {
		return []string{err.Error()}
	}
	logOf := func(id string) []byte {
		b, _ := os.ReadFile(filepath.Join(dir, "spool", id, "log"))
		return b
	}
	for id, log := range p.logs {
		if now := logOf(id); len(now) > 0 && !bytes.HasPrefix(now, log) {
			fail("the log of %s is not what was synced of it", id)
		}
	}
	run, stop := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { err = m.Run(run) })
	db, dberr := store.Open(ctx, filepath.Join(dir, "db", "power.db"))
	if dberr == nil { // of what cannot be fetched, the task tells
		_, _ = measurement.Recover(ctx, db, func(context.Context, string) (measurement.Monitor, func() error, error) {
			c, err := monitorclient.Dial(l.Addr().String(), monitorclient.Options{})
			if err != nil {
				return nil, nil, err
			}
			return c, c.Close, nil
		})
	}
	stop()
	if serving.Wait(); db == nil || err != nil {
		return append(wrong, fmt.Sprint(dberr, err))
	}
	have := storedTasks(ctx, db, p.told, fail)
	for id := range whole {
		want := loggedChunks(p.logs[id])
		if p.stopped {
			want = loggedChunks(whole[id])
		}
		kept := loggedChunks(logOf(id))
		for no, crc := range want {
			if _, needed := final[id][no]; needed && kept[no] != crc && have[id][no] != crc {
				fail("chunk %d of %s is neither in the spool nor in the database%s", no, id, tasksOf(ctx, db, id))
			}
		}
	}
	if err := db.Close(); err != nil {
		fail("%v", err)
	}
	return wrong
}

// tasksOf describes the tasks of a capture.
func tasksOf(ctx context.Context, db *store.DB, capture string) (out string) {
	list, err := db.Tasks(ctx, store.Query{})
	for i := range list {
		if list[i].CaptureID == capture {
			t, terr := db.Task(ctx, list[i].ID)
			out += fmt.Sprintf("; task %d in state %v: %s; %d chunks; markers %+v", t.ID, t.State, t.Reason, t.Chunks, t.Markers)
			err = errors.Join(err, terr)
		}
	}
	return fmt.Sprint(out, err)
}

// beyondMarkers removes the chunks before the start marker and behind the stop marker: one that was sent before its
// marker was found is stored all the same, and by another host it is not.
func beyondMarkers(ctx context.Context, db *store.DB, final chunksOf) error {
	list, err := db.Tasks(ctx, store.Query{})
	for i := range list {
		t, terr := db.Task(ctx, list[i].ID)
		if err = errors.Join(err, terr); err != nil {
			return err
		}
		start, stop := marker.Pair(t.Markers)
		at := func(scan uint64) measure.Seconds {
			return t.Setup.Timebase.Seconds(float64(scan) * t.Setup.Timebase.TicksPerScan)
		}
		for c, err := range db.Chunks(ctx, t.ID, 0) {
			if err != nil {
				return err
			}
			if stop != nil && at(c.FirstScan) > stop.End || start != nil && at(c.FirstScan+uint64(c.Scans)) < start.Begin {
				delete(final[t.CaptureID], c.No)
			}
		}
	}
	return err
}

// storedTasks holds the database against itself, and returns its chunks by their captures.
func storedTasks(ctx context.Context, db *store.DB, told bool, fail func(string, ...any)) chunksOf {
	out := chunksOf{}
	list, err := db.Tasks(ctx, store.Query{})
	if told && len(list) == 0 {
		fail("the task is gone")
	}
	for i := range list {
		t, terr := db.Task(ctx, list[i].ID)
		if err = errors.Join(err, terr); terr != nil {
			continue
		}
		if told && t.State != store.Complete {
			fail("the run had told its result, and the task is in state %d: %s", t.State, t.Reason)
		}
		out[t.CaptureID] = Examine(ctx, db, &t, nil, fail).CRCs
	}
	r, cerr := db.Check(ctx, store.CheckOptions{})
	if err = errors.Join(err, cerr); err != nil {
		fail("%v", err)
		return out
	}
	for _, f := range r.Findings {
		if f.Kind != store.BadLog { // of a log that the cut tore, it is to be said
			fail("%s: %s", f.Kind, f.What)
		}
	}
	return out
}

// cutKinds are the cuts that are tried before each sync; behind it, the first two are. Until
// samples were synced, the first and the last are enough; behind that, without the build tag slow, those and, in
// turn, one of the others.
var cutKinds = []cutKind{{synced, synced}, {synced, written}, {written, written}, {tornBytes, tornBytes}, {tornBytes, tornBytes}}

// A measurement of real processes survives a power cut of both machines at each sync: of
// what was written since, nothing is there, or all, or any sectors.
func TestMeasurementSurvivesEachCut(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("other processes are raced by no detector of this one")
	}
	base, calls := recordCalls(t)
	var whole map[string][]byte
	images, syncs, seen := 0, 0, map[uint64]bool{}
	replay(t, base, calls, func(_ *call, _ *tree, p cutPromise) { whole = p.logs })
	// What lies before and behind the markers, no database needs.
	db, err := store.Open(t.Context(), filepath.Join(base, "db", "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	final := storedTasks(t.Context(), db, true, t.Errorf)
	if err := beyondMarkers(t.Context(), db, final); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	memory := "/dev/shm" // the recovery's own syncs need not be waited for
	if _, err := os.Stat(memory); err != nil {
		memory = t.TempDir()
	}
	var lock sync.Mutex
	var work sync.WaitGroup
	free, seed := make(chan struct{}, 4), maphash.MakeSeed()
	replay(t, base, calls, func(c *call, d *tree, p cutPromise) {
		if !c.begins {
			syncs++
		}
		for i, k := range cutKinds {
			turn := coverage.Slow || syncs%(len(cutKinds)-2) == i-1
			if !c.begins && k.bytes != synced || i > 0 && i < len(cutKinds)-1 && (len(p.logs) == 0 || !turn) {
				continue
			}
			files := map[string][]byte{}
			d.root.image(files, "/", k, rand.New(rand.NewPCG(uint64(i), uint64(syncs))))
			if h := hash(files, p, seed); seen[h] {
				continue
			} else {
				seen[h] = true
			}
			images++
			what := fmt.Sprintf("%s of %s %s, kind %d", c.name, strings.TrimPrefix(c.path, base),
				map[bool]string{true: "begins", false: "ends"}[c.begins], i)
			free <- struct{}{}
			work.Go(func() {
				defer func() { <-free }()
				dir, err := os.MkdirTemp(memory, "wattmark-cut-")
				if err != nil {
					t.Error(err)
					return
				}
				lay(t, dir, files)
				for _, w := range recovered(t.Context(), dir, p, whole, final) {
					lock.Lock()
					t.Errorf("%s: %s", what, w)
					lock.Unlock()
				}
				_ = os.RemoveAll(dir)
			})
		}
	})
	work.Wait()
	t.Logf("%d syncs, %d images", syncs, images)
	if len(final) == 0 || len(whole) == 0 || syncs < 20 {
		t.Error("the trace shows no measurement")
	}
}

// replay makes the effect of each call, and calls at with each begin and end of a sync.
func replay(t *testing.T, base string, calls []call, at func(*call, *tree, cutPromise)) {
	d, p := newTree(base, "spool", "db"), cutPromise{logs: map[string][]byte{}}
	for i := range calls {
		c := &calls[i]
		if below := strings.TrimPrefix(c.path, base); strings.HasPrefix(below, "/spool") || strings.HasPrefix(below, "/db") {
			d.do(t, c)
		}
		if p.take(c, d); c.sync != nil {
			at(c, d, p)
		}
	}
}

func hash(files map[string][]byte, p cutPromise, seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&h, "%s\x00%d\x00", path, len(files[path]))
		_, _ = h.Write(files[path])
	}
	fmt.Fprint(&h, p.stopped, p.told, len(p.logs))
	return h.Sum64()
}

// lay writes an image's files below a directory.
func lay(t *testing.T, dir string, files map[string][]byte) {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, path)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if strings.HasSuffix(path, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, files[path], 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
