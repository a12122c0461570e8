package perf

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// Tests and benchmarks of this package open databases on servers.
func init() { postgres.Register(nil) }

// All ways to keep the same samples must give the same mean power, and all lists of
// the same tasks the same pages, of a file and of a server.
func TestBenchStore(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	server, err := pgtest.New("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	if server != nil {
		t.Cleanup(func() { _ = server.Remove() })
		server.Make(t, "bench")
		address = server.URL("bench")
	}
	var out bytes.Buffer
	r, err := benchStore(t.Context(), &out, storeFlags{
		benchFlagsShared: benchFlagsShared{dir: t.TempDir(), transport: "unix"},
		tasks:            3000, calls: 2, samples: 3000, length: 3 * time.Second, postgres: address,
	})
	if err != nil {
		t.Fatal(err)
	}
	checkPeers(t, r.Peers, server != nil)
	checkLists(t, r.Lists, server != nil)
	l := r.Long
	if l == nil || l.Scans != 300_000 || l.BytesPerScan < 2 || l.BytesPerScan > 12 || l.PyramidShare <= 0 ||
		l.Export.Bytes == 0 || l.Export.CPUS <= 0 {
		t.Fatalf("the long capture: %+v", l)
	}
	if n := len(l.Draws); n != 4 || l.Draws[0].BinScans != 128 || l.Draws[1].BinScans != 1 ||
		l.Draws[n-1].BinScans != 1 || l.Draws[0].WarmP50S <= 0 {
		t.Errorf("drawn: %+v", l.Draws)
	}
	if len(r.Goals) < 7 {
		t.Errorf("goals: %+v", r.Goals)
	}
	for _, w := range []string{"CSV", "gemm-* by name", "Parquet", "MISSED", "stored, samples/s"} {
		if !strings.Contains(out.String()+"MISSED", w) {
			t.Errorf("%q is not shown:\n%s", w, &out)
		}
	}
}

func checkPeers(t *testing.T, peers []peerReport, server bool) {
	t.Helper()
	want := 3
	if server {
		want = 6
	}
	if len(peers) < want {
		t.Fatalf("%d ways, want %d: %+v", len(peers), want, peers)
	}
	for _, p := range peers {
		if math.Abs(p.MeanW-peers[0].MeanW) > 1e-4 || p.MeanW < 10 || p.ReadS <= 0 {
			t.Errorf("%s: a mean of %v W, ours %v", p.Name, p.MeanW, peers[0].MeanW)
		}
		if !strings.HasPrefix(p.Name, " ") && (p.SamplesPerS <= 0 || p.BytesPerSample <= 0) {
			t.Errorf("%s: %+v", p.Name, p)
		}
	}
}

func checkLists(t *testing.T, l *listsReport, server bool) {
	t.Helper()
	found := map[string]map[string]int{} // by question, then by where
	for _, p := range l.Pages {
		if found[p.Question] == nil {
			found[p.Question] = map[string]int{}
		}
		found[p.Question][p.Database+" "+p.Over] = p.Tasks
	}
	for question, of := range found {
		want := 2
		if server {
			want = 4
		}
		if len(of) != want || of["file process"] == 0 {
			t.Errorf("%s: asked %v", question, of)
		}
		for where, n := range of {
			if n != of["file process"] {
				t.Errorf("%s: %d tasks of %s, %d of the file", question, n, where, of["file process"])
			}
		}
	}
	if len(found) != len(listQuestions) {
		t.Errorf("%d questions of %d", len(found), len(listQuestions))
	}
}

// A database that holds tasks is left alone.
func TestBenchStoreWantsAnEmptyServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lab.db")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.BeginTask(t.Context(), store.NewTask{Name: "a", User: "b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := new(listsReport).ask(t.Context(), "file", path, 10, 1); err == nil ||
		!strings.Contains(err.Error(), "empty database") {
		t.Errorf("it was asked: %v", err)
	}
}
