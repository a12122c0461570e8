package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// publishing starts the monitor again, now one that publishes its captures.
func (r *rig) publishing(servers, after string, more ...string) {
	r.t.Helper()
	r.monitor.stop(r.t)
	r.startMonitor(r.address, append([]string{"--cluster", servers, "--record-after", after}, more...)...)
}

// tasksOf lists what a store has.
func tasksOf(t *testing.T, path string) (out []store.Task) {
	t.Helper()
	db, err := store.OpenReadOnly(t.Context(), path)
	if err != nil {
		return nil // it is just being made
	}
	defer db.Close()
	ids, err := db.TaskIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if x, err := db.Task(t.Context(), id); err == nil { // it may be replaced this moment
			out = append(out, x)
		}
	}
	return out
}

// The host dies while it is sent the samples, and a node of three while they are published:
// the stores have the capture all the same, whole, by its monitor. When the host is back,
// its task takes that one's place, and the monitor is told that it may forget.
func TestMonitorPublishesWhatItsHostLost(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	if testing.Short() {
		t.Skip("elections take their time")
	}
	l, r := newLab(t, false), newRig(t)
	bus := l.dial()
	r.publishing(l.servers(), "1s")
	there := filepath.Join(l.dir, "there.db")
	start(t, "store", "--db", there, "--cluster", l.servers(), "--name", "lab")

	direct := r.address
	line := newProxy(t, direct)
	r.address = line.l.Addr().String()
	p, end := r.measuring(2)
	line.gate.Lock() // from here on the host hears nothing
	r.address = direct
	l.nodes[l.leader(bus, 0)].kill(t)
	end()
	eventually(t, "the capture has ended on the monitor", func() bool {
		cs := r.captures()
		return len(cs) == 1 && cs[0].State == session.Complete
	})
	p.kill(t)
	line.gate.Unlock()
	before := chunks(t, r.db, 1)

	r.monitor.await(t, "no host has published what a capture is of")
	eventually(t, "the monitor's task is in the store", func() bool {
		x := tasksOf(t, there)
		return len(x) == 1 && strings.HasPrefix(x[0].Reason, "filed by its monitor")
	})
	orphan := tasksOf(t, there)[0]
	kept := chunks(t, there, orphan.ID)
	if orphan.Tags[relay.TagOrphan] == "" || orphan.Name != "hit" || orphan.Result == nil || len(orphan.Markers) == 0 || len(kept) <= len(before) {
		t.Errorf("%+v of %d chunks, the host had %d", orphan, len(kept), len(before))
	}
	if cs := r.captures(); len(cs) != 1 {
		t.Errorf("the monitor keeps %d captures for its host, want one", len(cs))
	}

	start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", "none", "--cluster", l.servers())
	eventually(t, "the host's task has taken its place", func() bool {
		x := tasksOf(t, there)
		return len(x) == 1 && x[0].State == store.Complete && x[0].Tags[relay.TagOrphan] == ""
	})
	if got := chunks(t, there, tasksOf(t, there)[0].ID); !slices.Equal(got, kept) || !slices.Equal(got, chunks(t, r.db, 1)) {
		t.Errorf("samples differ: the store has %d chunks, had %d", len(got), len(kept))
	}
	eventually(t, "the monitor has let go", func() bool { return len(r.captures()) == 0 })
}

// No cluster answers: the measurement is none the worse, what its host released stays in the
// spool, over a restart of the monitor too, and is published when the cluster is there.
func TestMonitorPublishesWhenTheClusterIsBack(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	address := freeAddress(t)
	servers := "nats://" + address
	r.publishing(servers, "100ms")
	p := r.run("--benchmark", "half", "--duration", "100ms", "--name", "alone")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, &p.out, &p.err)
	}
	waits := func() bool {
		cs := r.captures()
		return len(cs) == 1 && strings.Contains(cs[0].Reason, "waits until the cluster has it")
	}
	if !waits() {
		t.Errorf("released, and not replicated: %+v", r.captures())
	}
	r.publishing(servers, "100ms")
	if !waits() {
		t.Errorf("after a restart: %+v", r.captures())
	}
	dir := t.TempDir()
	start(t, "cluster", "node", "--name", "n0", "--dir", filepath.Join(dir, "n0"), "--listen", address, "--streams", "2").await(t, "the streams are there")
	eventually(t, "the monitor has let go", func() bool { return len(r.captures()) == 0 })

	// The host published nothing of it; a relay beside its database does so later.
	there := filepath.Join(dir, "there.db")
	start(t, "store", "--db", there, "--cluster", servers, "--name", "lab")
	has := func(state store.State) func() bool {
		return func() bool {
			x := tasksOf(t, there)
			return len(x) == 1 && x[0].State == state && x[0].Chunks > 0
		}
	}
	eventually(t, "the store has the monitor's task", has(store.Incomplete))
	if code := wattmark(t, "relay", "--once", "--db", r.db, "--cluster", servers).code; code != 0 {
		t.Errorf("relay: %d", code)
	}
	eventually(t, "the store has the host's", has(store.Complete))
	if a, b := chunks(t, r.db, 1), chunks(t, there, tasksOf(t, there)[0].ID); !slices.Equal(a, b) {
		t.Errorf("other samples: %s", fmt.Sprint(len(a), " and ", len(b)))
	}
}
