package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// lab is a cluster of three processes, each in a network of its own where that can be
// made, so that one can be cut off.
type lab struct {
	t       *testing.T
	dir     string
	nodes   [3]*process
	address [3]string // host of each node
	ports   [3][2]int // for clients and nodes
	space   [3]string // network namespace; empty for none
	more    []string  // flags of all nodes
	trust   auth.Client
	host    string // the database whose tasks are published
	db      *store.DB
	tasks   int
}

func newLab(t *testing.T, cut bool, more ...string) *lab {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector cannot see into other processes")
	}
	l := &lab{t: t, dir: t.TempDir(), more: more}
	l.host = filepath.Join(l.dir, "host.db")
	var err error
	if l.db, err = store.Open(t.Context(), l.host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.db.Close() })
	if cut {
		l.networks()
	} else {
		l.loopback()
	}
	for i := range l.nodes {
		l.start(i)
	}
	for i := range l.nodes {
		l.nodes[i].await(t, "the streams are there")
	}
	return l
}

// loopback gives all nodes this machine's own address.
func (l *lab) loopback() {
	for i := range l.nodes {
		l.address[i] = "127.0.0.1"
		for k := range l.ports[i] {
			l.ports[i][k] = freePort(l.t)
		}
	}
}

// lacks skips the test, or fails it where WATTMARK_REQUIRE_TOOLS=1 asks for all there is.
func (l *lab) lacks(why string) {
	l.t.Helper()
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		l.t.Fatal(why)
	}
	l.t.Skip(why)
}

// networks gives each node a network namespace, joined by a bridge. What reaches them can
// be reached by others, so they speak TLS and ask who calls.
func (l *lab) networks() {
	l.t.Helper()
	if os.Geteuid() != 0 {
		l.lacks("only root makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		l.lacks("no program ip (iproute2), which makes network namespaces")
	}
	id := fmt.Sprintf("wm%d", os.Getpid()%100000)
	net := fmt.Sprintf("198.18.%d.", os.Getpid()%250)
	if out, err := exec.Command("ip", "link", "add", id, "type", "bridge").CombinedOutput(); err != nil {
		l.lacks(fmt.Sprintf("no network namespaces here: %s", out))
	}
	l.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", id).Run() })
	l.ip("addr", "add", net+"254/24", "dev", id)
	l.ip("link", "set", id, "up")
	for i := range l.nodes {
		l.space[i], l.address[i], l.ports[i] = fmt.Sprintf("%sn%d", id, i), fmt.Sprint(net, i+1), [2]int{7561, 7571}
		l.ip("netns", "add", l.space[i])
		l.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.space[i]).Run() })
		l.ip("link", "add", l.space[i], "type", "veth", "peer", "name", "e0", "netns", l.space[i])
		l.ip("link", "set", l.space[i], "master", id, "up")
		l.ip("-n", l.space[i], "addr", "add", l.address[i]+"/24", "dev", "e0")
		l.ip("-n", l.space[i], "link", "set", "e0", "up")
		l.ip("-n", l.space[i], "link", "set", "lo", "up")
	}
	dir := secured(l.t, l.address[:]...)
	l.more = append(slices.Clone(l.more), "--auth", dir)
	l.trust = auth.Client{CA: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "operator.token")}
}

func (l *lab) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// cut takes a node's cable out, mend puts it in again.
func (l *lab) cut(i int) { l.ip("link", "set", l.space[i], "down") }

func (l *lab) mend(i int) { l.ip("link", "set", l.space[i], "up") }

func (l *lab) start(i int) {
	l.t.Helper()
	path, err := program()
	if err != nil {
		l.t.Fatal(err)
	}
	var peers []string
	for k := range l.nodes {
		peers = append(peers, l.peer(k))
	}
	args := append([]string{
		path, "cluster", "node", "--name", fmt.Sprintf("n%d", i), "--dir", filepath.Join(l.dir, fmt.Sprintf("n%d", i)), "--streams", "1",
		"--listen", fmt.Sprintf("%s:%d", l.address[i], l.ports[i][0]), "--nodes", peers[i], "--peers", strings.Join(peers, ","),
	}, l.more...)
	if l.space[i] != "" {
		args = append([]string{"ip", "netns", "exec", l.space[i]}, args...)
	}
	l.nodes[i] = startCommand(l.t, nil, exec.Command(args[0], args[1:]...))
}

// run starts the program as an operator of the cluster.
func (l *lab) run(args ...string) *process {
	l.t.Helper()
	if l.trust.CA != "" {
		args = append(args, "--tls-ca", l.trust.CA, "--token-file", l.trust.TokenFile)
	}
	return start(l.t, args...)
}

// peer is a node's address for the others.
func (l *lab) peer(i int) string { return fmt.Sprintf("%s:%d", l.address[i], l.ports[i][1]) }

// servers are the nodes' addresses for clients.
func (l *lab) servers() string {
	var out []string
	for i := range l.nodes {
		out = append(out, fmt.Sprintf("nats://%s:%d", l.address[i], l.ports[i][0]))
	}
	return strings.Join(out, ",")
}

// status asks until the answer is as wanted.
func (l *lab) status(b *relay.Bus, want func([]relay.StreamStatus) bool) []relay.StreamStatus {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for {
		s := b.Status(ctx)
		if want(s) {
			return s
		}
		if !cli.SleepUntil(ctx, time.Now().Add(100*time.Millisecond)) {
			l.t.Fatalf("the cluster does not become what it should: %+v", s)
		}
	}
}

func (l *lab) dial() *relay.Bus {
	l.t.Helper()
	b, err := l.as(l.trust, patience)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(b.Close)
	return b
}

// leader is the node that leads a partition; the other two follow.
func (l *lab) leader(b *relay.Bus, partition int) int {
	l.t.Helper()
	s := l.status(b, func(s []relay.StreamStatus) bool { return s[partition].Leader != "" })
	return int(s[partition].Leader[1] - '0')
}

// whole waits until all replicas are there and have all.
func (l *lab) whole(b *relay.Bus) {
	l.t.Helper()
	l.status(b, func(list []relay.StreamStatus) bool {
		for _, s := range list {
			if len(s.Replicas) != 3 {
				return false
			}
			for _, r := range s.Replicas {
				if !r.Current || r.Offline || r.Lag > 0 {
					return false
				}
			}
		}
		return true
	})
}

var labSetup = measure.Setup{
	Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10},
	Channels: []measure.Channel{{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3}, {Name: "v", Unit: measure.UnitVolt, Gain: 1e-3}},
	Rails:    []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
}

// measured adds tasks to the host's database, each of so many chunks of noise.
func (l *lab) measured(tasks, chunks int) {
	l.t.Helper()
	for range tasks {
		l.tasks++
		if err := fillLabTask(l.t.Context(), l.db, l.tasks, chunks); err != nil {
			l.t.Fatal(err)
		}
	}
}

func fillLabTask(ctx context.Context, db *store.DB, n, chunks int) error {
	const scans = 8192
	id, err := db.BeginTask(ctx, store.NewTask{
		Name: "gemm", User: "ada", Launched: time.Unix(int64(1e9+n), 0), Monitor: "lab:7551", CaptureID: fmt.Sprintf("c-%d", n), GPUUUID: "GPU-1",
	})
	if err == nil {
		err = db.PutHeader(ctx, id, store.Header{Bench: "desk", Setup: labSetup, CalibrationID: "c1", Started: time.Unix(1e9, 0)})
	}
	if err != nil {
		return err
	}
	e, err := chunk.NewEncoder(labSetup.Timebase, 2, scans)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	var list []*chunk.Chunk
	for no := range chunks {
		b := measure.Block{FirstScan: uint64(no * scans), FirstTick: int64(10 * no * scans), Counts: make([][]measure.Count, 2)}
		for c := range b.Counts {
			b.Counts[c] = make([]measure.Count, scans)
			for i := range b.Counts[c] {
				b.Counts[c][i] = rng.Int32N(1 << 16)
			}
		}
		if _, err := e.Append(&b); err != nil {
			return err
		}
		list = append(list, e.Flush(uint64(no)).Clone())
	}
	if err := db.AppendChunks(ctx, id, list, nil); err != nil {
		return err
	}
	return db.Finish(ctx, id, store.Outcome{State: store.Complete})
}

// published waits until the cluster has acknowledged all tasks.
func (l *lab) published(within time.Duration) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), within)
	defer cancel()
	for {
		done, err := l.db.Tagged(ctx, relay.TagReplicated)
		if err == nil && len(done) == l.tasks {
			return
		}
		if !cli.SleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			l.t.Fatalf("%d of %d tasks are published (%v)", len(done), l.tasks, err)
		}
	}
}

// some waits until so many are.
func (l *lab) some(n int) {
	l.t.Helper()
	for {
		done, err := l.db.Tagged(l.t.Context(), relay.TagReplicated)
		if err != nil {
			l.t.Fatal(err)
		}
		if len(done) >= n {
			return
		}
		cli.SleepUntil(l.t.Context(), time.Now().Add(5*time.Millisecond))
	}
}

// sampleDigests is a digest of each task's decoded samples, by capture. A capture that is
// there twice fails the test.
func sampleDigests(t *testing.T, db *store.DB) map[string][32]byte {
	t.Helper()
	ids, err := db.TaskIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][32]byte{}
	for _, id := range ids {
		x, err := db.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if x.State != store.Complete {
			continue // it is still coming
		}
		h := sha256.New()
		for b, err := range chunk.DecodeAll(db.Chunks(t.Context(), id, 0), &x.Setup) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(h, b.FirstScan, b.Counts)
		}
		if _, twice := out[x.CaptureID]; twice {
			t.Errorf("capture %s is there twice", x.CaptureID)
		}
		out[x.CaptureID] = [32]byte(h.Sum(nil))
	}
	return out
}

// arrived waits until the stores have all tasks between them, and compares every sample.
func (l *lab) arrived(within time.Duration, stores ...*store.DB) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), within)
	defer cancel()
	for {
		n := 0
		for _, db := range stores {
			var here int
			if err := db.SQL().QueryRowContext(ctx, fmt.Sprintf(`SELECT count(*) FROM task WHERE state=%d`, store.Complete)).Scan(&here); err != nil && ctx.Err() == nil {
				l.t.Fatal(err)
			}
			n += here
		}
		if n >= l.tasks {
			break
		}
		if !cli.SleepUntil(ctx, time.Now().Add(50*time.Millisecond)) {
			l.t.Fatalf("%d of %d tasks have arrived", n, l.tasks)
		}
	}
	want, got := sampleDigests(l.t, l.db), map[string][32]byte{}
	for _, db := range stores {
		for capture, sum := range sampleDigests(l.t, db) {
			if _, twice := got[capture]; twice {
				l.t.Errorf("capture %s is in two shards", capture)
			}
			got[capture] = sum
		}
	}
	if len(want) != l.tasks || len(got) != l.tasks {
		l.t.Errorf("%d tasks were measured, %d are here, %d arrived", l.tasks, len(want), len(got))
	}
	for capture, sum := range want {
		if got[capture] != sum {
			l.t.Errorf("the samples of capture %s are others", capture)
		}
	}
}
