package main

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/freeport"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/store"
)

// rig is a bench of processes: a meter that is emulated in this one, with a
// cable that can be pulled, and a monitor and hosts in their own.
type rig struct {
	t                       *testing.T
	link, socket, spool, db string
	address                 string   // of the monitor
	env                     []string // of what run starts, besides this process's
	monitor                 *process

	live *board.Live
	face *ps3face.Face
	port *pty.Port
	ran  chan struct{} // closed when the face has let go of the port
}

// newRig makes a rig whose monitor's environment is this process's with more.
func newRig(t *testing.T, env ...string) *rig {
	t.Helper()
	r := newMeter(t, env...)
	r.startMonitor(freeAddress(t))
	return r
}

// newMeter is a rig without a monitor.
func newMeter(t *testing.T, env ...string) *rig {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector cannot see into other processes, and makes the meter in this one miss its time")
	}
	dir := t.TempDir()
	r := &rig{
		t: t, link: filepath.Join(dir, "meter"), socket: filepath.Join(dir, "gpu"), spool: filepath.Join(dir, "spool"),
		db: filepath.Join(dir, "power.db"), env: env,
	}
	emptyDB(t, r.db)
	b, err := board.New(board.Config{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	r.live = board.NewLive(b, time.Now())
	// A busy machine sends samples late, and loses none.
	late := pace.Pace{Epoch: r.live.Epoch, Backlog: patience}
	if r.face, err = ps3face.New(b, late, ps3face.Config{Seed: 7}); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- sessioncmd.ServePlant(ctx, r.socket, r.live) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	r.plug()
	t.Cleanup(r.unplug)
	return r
}

// freeAddress returns an address of the loopback that stays free while its server is away.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// freePort returns the port of a free address.
func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(freeAddress(t)).Port())
}

// plug puts the meter's cable in.
func (r *rig) plug() {
	r.t.Helper()
	port, err := pty.OpenPort()
	if err == nil {
		_ = os.Remove(r.link)
		err = os.Symlink(port.Path(), r.link)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	ran := make(chan struct{})
	r.port, r.ran = port, ran
	ctx := r.t.Context()
	go func() {
		defer close(ran)
		_ = r.face.Run(ctx, port) // a pulled cable is an error to the device
	}()
}

// unplug pulls the meter's cable; its port vanishes.
func (r *rig) unplug() {
	_ = os.Remove(r.link)
	_ = r.port.Close()
	<-r.ran
}

// startMonitor starts the monitor, again on the address that it had.
func (r *rig) startMonitor(listen string, more ...string) {
	r.t.Helper()
	args := append([]string{"monitor", "--instrument", "powersensor3", "--port", r.link, "--spool", r.spool, "--listen", listen}, more...)
	r.monitor = startEnv(r.t, r.env, args...)
	r.address = r.monitor.await(r.t, `msg="serving the bench".* address=(\S+)`)[1]
}

// run starts a measurement on the simulated GPU, on a disk however small.
func (r *rig) run(more ...string) *process {
	r.t.Helper()
	return startEnv(r.t, r.env, r.runArgs(more...)...)
}

// runArgs are the arguments of run.
func (r *rig) runArgs(more ...string) []string {
	return append([]string{"run", "--gpu", "sim:" + r.socket, "--monitor", r.address, "--db", r.db, "--json", "--warm-up", "50ms", "--db-free", "0"}, more...)
}

// held are the arguments of a run whose program draws memory's power until its standard input ends.
func (r *rig) held(name string) []string {
	r.t.Helper()
	said, answer := filepath.Join(r.t.TempDir(), "said"), filepath.Join(r.t.TempDir(), "answer")
	fifo := func(path string) *os.File {
		err := syscall.Mkfifo(path, 0o600)
		if err != nil {
			r.t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		return f
	}
	from, to := fifo(said), fifo(answer)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, l := range []load.State{load.Memory, load.ActiveIdle} {
			if _, err := from.Read(make([]byte, 1)); err != nil {
				return
			}
			if _, err := r.live.SetLoad(time.Now(), l); err != nil {
				r.t.Error(err)
			}
		}
		_, _ = to.WriteString("\n")
	}()
	r.t.Cleanup(func() {
		_ = from.Close()
		<-ended
		_ = to.Close()
	})
	return r.runArgs("--name", name, "--", "sh", "-c", `printf b >"$0"; cat; printf e >"$0"; read -r _ <"$1"`, said, answer)
}

// working starts a run that draws memory's power until end is called.
func (r *rig) working(name string) (work *process, end func()) {
	r.t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	work = startWith(r.t, in, r.held(name)...)
	_ = in.Close()
	end = sync.OnceFunc(func() { _ = out.Close() })
	r.t.Cleanup(end)
	return work, end
}

// alone are the arguments of run where it reads the rig's meter itself.
func (r *rig) alone(more ...string) []string {
	return append([]string{
		"run", "--instrument", "powersensor3", "--port", r.link, "--gpu", "sim:" + r.socket, "--db", r.db, "--warm-up", "50ms",
		"--db-free", "0",
	}, more...)
}

// kept are the captures in the spool of run for the rig's meter.
func (r *rig) kept() (captures []string) {
	r.t.Helper()
	spool := filepath.Join(os.Getenv("XDG_STATE_HOME"), "wattmark", "spool", "powersensor3-"+strings.ReplaceAll(r.link, "/", "_"))
	entries, err := os.ReadDir(spool)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			captures = append(captures, e.Name())
		}
	}
	return captures
}

// spooled returns the size in bytes of the largest log of the captures in the spool. The spool's reserve, a file of 64 KiB
// beside each log, holds no samples.
func (r *rig) spooled() (size int64) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_STATE_HOME"), "wattmark", "spool", "powersensor3-"+strings.ReplaceAll(r.link, "/", "_"), "*", "log"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			size = max(size, info.Size())
		}
	}
	return size
}

// client talks to the monitor.
func (r *rig) client() *monitorclient.Client {
	r.t.Helper()
	c, err := monitorclient.Dial(r.address, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) captures() []session.Capture {
	r.t.Helper()
	c, err := monitorclient.Dial(r.address, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close() // it is asked again and again, and one address has not many connections
	cs, err := c.Captures(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return cs
}

// free runs a measurement, which shows that the bench was released and works. A simulation that gets no processor may
// lose markers: its task is incomplete then.
func (r *rig) free() {
	r.t.Helper()
	p := r.run("--benchmark", "half", "--duration", "100ms", "--name", "afterwards")
	if code := p.wait(r.t); code != 0 && code != cli.ExitIncomplete {
		r.t.Errorf("the bench cannot be used afterwards: exit code %d\n%s%s", code, &p.out, &p.err)
	}
}

// onlyTask reads a task as it is stored now; ok is false before there is one.
func onlyTask(t *testing.T, path string, id store.TaskID) (x store.Task, ok bool) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return x, false
	}
	db, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		return x, false // it is just being made
	}
	defer db.Close()
	x, err = db.Task(t.Context(), id)
	return x, err == nil
}

// stored is a chunk in the database.
type stored struct {
	first uint64
	scans int
	crc   uint32
}

// chunks reads a task's chunks, which must follow each other without a hole
// where no gap is told.
func chunks(t *testing.T, path string, id store.TaskID) (all []stored) {
	t.Helper()
	db, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	x, err := db.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range db.Chunks(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n := len(all); n > 0 {
			end := all[n-1].first + uint64(all[n-1].scans)
			if hole := c.FirstScan - end; c.FirstScan < end || hole != lostAt(&x, end) {
				t.Errorf("chunk %d begins at scan %d, the one before ends at %d, and a gap of %d scans is told", c.No, c.FirstScan, end, lostAt(&x, end))
			}
		}
		all = append(all, stored{c.FirstScan, c.Scans, c.CRC})
	}
	return all
}

// lostAt is how many scans the task says were lost from a scan on.
func lostAt(x *store.Task, scan uint64) (n uint64) {
	for _, e := range x.Events {
		if e.Kind == measure.EventGap && e.FirstScan == scan {
			n += e.Scans
		}
	}
	return n
}

// stored opens the rig's database; the caller closes it.
func (r *rig) stored() *store.DB {
	r.t.Helper()
	db, err := store.Open(r.t.Context(), r.db)
	if err != nil {
		r.t.Fatal(err)
	}
	return db
}

// truth is the energy that the board drew while the task's kernels ran.
func (r *rig) truth(id store.TaskID) float64 {
	r.t.Helper()
	db := r.stored()
	defer db.Close()
	ks, err := db.Kernels(r.t.Context(), id)
	if err != nil || len(ks) == 0 {
		r.t.Fatalf("%d kernels, %v", len(ks), err)
	}
	e, err := r.live.Energy(ks[0].Start, ks[len(ks)-1].End)
	if err != nil {
		r.t.Fatal(err)
	}
	return float64(e.Total)
}

// proxy stands between host and monitor. Frozen, it lets the host's words
// through and holds the answers back.
type proxy struct {
	l    net.Listener
	to   string
	gate sync.RWMutex
	wg   sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		host, err := p.l.Accept()
		if err != nil {
			return
		}
		monitor, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = host.Close()
			continue
		}
		hang := func() { _, _ = host.Close(), monitor.Close() }
		p.wg.Go(func() {
			defer hang()
			_, _ = io.Copy(monitor, host)
		})
		p.wg.Go(func() {
			defer hang()
			_, _ = io.Copy(gated{host, &p.gate}, monitor)
		})
	}
}

// gated writes while its gate is open.
type gated struct {
	w    io.Writer
	gate *sync.RWMutex
}

func (g gated) Write(b []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.w.Write(b)
}
