package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/store"
)

// fetch asks for a page and returns it.
func fetch(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", url, res.Status, err, b)
	}
	return string(b)
}

// has checks that a page of metrics has lines.
func has(t *testing.T, metrics string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(metrics, l+"\n") {
			t.Errorf("no line %q in the metrics", l)
		}
	}
}

// watchTasks begins a watch. line returns its next line, of which it checks the event,
// and rest the last one, once the watch has ended.
func watchTasks(t *testing.T, url string) (line func(event string) string, rest func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/v1/tasks:watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	line = func(event string) string {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), event) {
			t.Fatalf("%q %v, want %s", lines.Text(), lines.Err(), event)
		}
		return lines.Text()
	}
	return line, func() (last string) {
		for lines.Scan() {
			last = lines.Text()
		}
		return last
	}
}

// A host serves JSON; who watches there sees what another process writes; it ends
// with that watch going on.
func TestHostServesJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "power.db")
	h := start(t, "host", "--db", path, "--listen", "127.0.0.1:0", "--socket", "none", "--http", "127.0.0.1:0", "--pprof")
	url := h.await(t, `serving JSON over HTTP" address=(http://[0-9.:]+)`)[1]
	if got := fetch(t, url+"/v1/tasks"); !strings.Contains(got, `"tasks":[]`) {
		t.Errorf("an empty database: %s", got)
	}
	for page, says := range map[string]string{"/healthz": "SERVING", "/openapi.json": "/v1/tasks", "/debug/pprof/": "goroutine"} {
		if got := fetch(t, url+page); !strings.Contains(got, says) {
			t.Errorf("%s: %.200s", page, got)
		}
	}
	line, rest := watchTasks(t, url)
	line("TASK_EVENT_WATCHING")
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.BeginTask(t.Context(), store.NewTask{Name: "ядро", User: "ада"}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Result struct {
			Task struct {
				Name string `json:"name"`
			} `json:"task"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(line("TASK_EVENT_ADDED")), &got); err != nil || got.Result.Task.Name != "ядро" {
		t.Errorf("%+v %v", got, err)
	}
	has(t, fetch(t, url+"/metrics"), "wattmark_tasks 1", "wattmark_tasks_running 1", "wattmark_database_up 1",
		`wattmark_rpc_requests_total{code="OK",method="TaskService/ListTasks"} 1`, `wattmark_rpc_active{method="TaskService/WatchTasks"} 1`)
	if code := h.stop(t); code != 0 {
		t.Errorf("the host ended with %d", code)
	}
	if end := rest(); !strings.Contains(end, "the server is stopping") { // ended, not forgotten
		t.Errorf("the watch ended with %q", end)
	}
}

func TestMonitorServesMetrics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := start(t, "monitor", "--instrument", "powersensor3", "--port", filepath.Join(dir, "none"), "--spool", filepath.Join(dir, "spool"),
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	url := m.await(t, `serving metrics" address=(http://[0-9.:]+)`)[1]
	has(t, fetch(t, url+"/metrics"), "wattmark_monitor_captures_total 0", `wattmark_monitor_captures_held{state="RUNNING"} 0`, "wattmark_monitor_busy 0", "wattmark_monitor_lag_seconds 0")
	if got := fetch(t, url+"/healthz"); got != `{"status":"SERVING"}` {
		t.Errorf("health: %s", got)
	}
	if code := m.stop(t); code != 0 {
		t.Errorf("the monitor ended with %d", code)
	}
}

// A scrape looks at an idle bench with --scrape-idle: both services export its watts and joules,
// and the host the last task's energy.
func TestMetricsHoldWattsAndJoules(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	r.monitor.stop(t)
	r.startMonitor(r.address, "--http", "127.0.0.1:0", "--scrape-idle")
	r.run("--benchmark", "memory", "--duration", "300ms").wait(t)
	h := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--socket", "none",
		"--monitor", r.address, "--scrape-idle")
	for _, url := range []string{
		r.monitor.await(t, `serving metrics" address=(http://[0-9.:]+)`)[1],
		h.await(t, `serving JSON over HTTP" address=(http://[0-9.:]+)`)[1],
	} {
		value := func(line string) float64 {
			found := regexp.MustCompile(`(?m)^` + line + `\{.*\} (\S+)$`).FindStringSubmatch(fetch(t, url+"/metrics"))
			if found == nil {
				return math.NaN()
			}
			v, _ := strconv.ParseFloat(found[1], 64)
			return v
		}
		eventually(t, "watts and joules", func() bool {
			return value("wattmark_power_watts") > 0 && value("wattmark_energy_joules_total") > 0 &&
				value("wattmark_energy_seconds_total") > 0
		})
		if promtool, err := exec.LookPath("promtool"); err == nil {
			check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
			check.Stdin = strings.NewReader(fetch(t, url+"/metrics"))
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("promtool: %v: %s", err, out)
			}
		}
		if strings.Contains(fetch(t, url+"/metrics"), "wattmark_tasks ") && !(value("wattmark_last_task_energy_joules") > 10) {
			t.Errorf("last task: %v J", value("wattmark_last_task_energy_joules"))
		}
	}
}

func TestHTTPKeepsToThisMachine(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "power.db")
	for _, address := range []string{":0", "0.0.0.0:0"} {
		local := []string{"host", "--db", db, "--socket", "none", "--listen", "127.0.0.1:0", "--http"}
		inside(t, append(local, address)...).fails(t, cli.ExitUsage, "without TLS", "wattmark auth init", "--insecure")
		inside(t, append(local, address, "--http-public")...).fails(t, cli.ExitUsage, "without TLS")
		inside(t, "host", "--db", db, "--socket", "none", "--listen", address).fails(t, cli.ExitUsage, "without TLS")
		inside(t, "monitor", "--instrument", "nvml", "--spool", t.TempDir(), "--listen", address).fails(t, cli.ExitUsage, "without TLS")
	}
	dir := filepath.Join(t.TempDir(), "auth")
	inside(t, "auth", "init", "--server", "lab", "--auth", dir).ok(t)
	inside(t, "host", "--db", db, "--socket", "none", "--listen", ":0", "--serve-cert", dir+"/server.crt", "--serve-key", dir+"/server.key").
		fails(t, cli.ExitUsage, "without asking who they are")
	inside(t, "host", "--db", db, "--http", "7553").fails(t, cli.ExitUsage, "127.0.0.1:7553")
	inside(t, "host", "--db", db, "--pprof").fails(t, cli.ExitUsage, "--http")
	inside(t, "monitor", "--instrument", "nvml", "--spool", t.TempDir(), "--listen", "127.0.0.1:0", "--http", ":0").fails(t, cli.ExitUsage, "--insecure")
}
