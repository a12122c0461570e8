package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// A monitor keeps a capture until a cluster has its task.
func TestReleaseMeansReplicated(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	node := start(t, "cluster", "node", "--name", "n0", "--dir", filepath.Join(t.TempDir(), "n0"), "--listen", "127.0.0.1:0", "--streams", "1")
	servers := node.await(t, `msg="the node is up".* address=(\S+)`)[1]
	node.await(t, "the streams are there")

	measure := func(name, cluster, wait string) {
		t.Helper()
		p := r.run("--benchmark", "half", "--duration", "100ms", "--name", name, "--cluster", cluster, "--cluster-wait", wait)
		if code := p.wait(t); code != 0 {
			t.Fatalf("exit code %d\n%s%s", code, &p.out, &p.err)
		}
	}
	measure("through", servers, "5m")
	if held := r.captures(); len(held) != 0 {
		t.Errorf("the cluster has the task, and the monitor still keeps %+v", held)
	}
	measure("held", "nats://127.0.0.1:1", "2s") // nobody is there
	held, ok := onlyTask(t, r.db, 2)
	if !ok || held.State != store.Complete || held.Tags[relay.TagReplicated] != "" || held.Tags[relay.TagHeld] != r.address {
		t.Fatalf("%v, %+v", held.State, held.Tags)
	}
	if c := r.captures(); len(c) != 1 || c[0].ID != held.CaptureID {
		t.Fatalf("the monitor keeps %+v, not the capture that nobody replicated", c)
	}
	wattmark(t, "relay", "--once", "--db", r.db, "--cluster", servers)
	if c := r.captures(); len(c) != 0 {
		t.Errorf("the monitor still keeps %+v", c)
	}
	held, _ = onlyTask(t, r.db, 2)
	if held.Tags[relay.TagReplicated] == "" || held.Tags[relay.TagHeld] != "" {
		t.Errorf("%+v", held.Tags)
	}
}

// Every command that measures has a gate: none releases what is not replicated.
func TestEveryMeasurementHasAGate(t *testing.T) {
	// The demonstration brings a monitor of its own.
	alone := filepath.Join("..", "internal", "run", "demo.go")
	var files []string
	root := filepath.Join("..", "internal")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 50 {
		t.Fatal(len(files), err)
	}
	n := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		measures := strings.Contains(string(text), "measurement.Config{\n") || strings.Contains(string(text), "measurement.Recover(")
		if !measures || strings.HasSuffix(name, "_test.go") || name == alone {
			continue
		}
		if n++; !strings.Contains(string(text), "cluster.OpenGate(") && !strings.Contains(string(text), "cluster.GateFlags") {
			t.Errorf("%s measures without a gate", name)
		}
	}
	if n < 2 { // the configuration of all commands, and the host's recovery
		t.Errorf("only %d files measure: the test looks for something else", n)
	}
}

// A command of several measurements, and one that stores more when the measurement has ended,
// publish it all, and the cluster of the environment is theirs as well as one of a flag.
func TestEveryCommandReleasesWhatIsReplicated(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	node := start(t, "cluster", "node", "--name", "n0", "--dir", filepath.Join(t.TempDir(), "n0"), "--listen", "127.0.0.1:0", "--streams", "1")
	servers := node.await(t, `msg="the node is up".* address=(\S+)`)[1]
	node.await(t, "the streams are there")
	var env []string
	ran := func(args ...string) {
		t.Helper()
		p := startEnv(t, env, append(args, "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db)...)
		if code := p.wait(t); code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, &p.out, &p.err)
		}
	}
	ran("roofline", "sweep", "--rounds", "1,64,256", "--duration", "100ms", "--warm-up", "50ms", "--name", "line", "--cluster", servers)
	env = []string{"WATTMARK_CLUSTER=" + servers}
	ran("tiny", "--scheme", "repeat", "--benchmark", "compute", "--length", "1ms", "--launches", "20", "--name", "small")
	tasks := tasksOf(t, r.db)
	if len(tasks) != 4 {
		t.Errorf("%d tasks", len(tasks))
	}
	for _, x := range tasks {
		if x.Tags[relay.TagReplicated] == "" || x.Tags[relay.TagHeld] != "" {
			t.Errorf("task %d, %s: %+v", x.ID, x.Name, x.Tags)
		}
	}
	if held := r.captures(); len(held) != 0 {
		t.Errorf("the monitor still keeps %+v", held)
	}
	there := filepath.Join(t.TempDir(), "there.db")
	start(t, "store", "--db", there, "--cluster", servers, "--name", "lab")
	eventually(t, "all has arrived", func() bool { return len(tasksOf(t, there)) == 4 })
	for _, x := range tasksOf(t, there) {
		db, err := store.OpenReadOnly(t.Context(), there)
		if err != nil {
			t.Fatal(err)
		}
		got, err := db.Tiny(t.Context(), x.ID)
		if x.Name == "small" && (err != nil || got == nil) {
			t.Errorf("what the command found out did not come along: %v", err)
		}
		_ = db.Close()
	}
}
