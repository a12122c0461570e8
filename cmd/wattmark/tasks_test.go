package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/coverage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// twoTasks makes a database with a task of ada's and one of bob's.
func twoTasks(t *testing.T) (db string) {
	t.Helper()
	return demoDB(t, demoOf{name: "gemm-ada", user: "ada", length: demo.length}, demoOf{name: "gemm-bob", user: "bob", length: demo.length})
}

type taskList struct {
	Tasks []report.Report `json:"tasks"`
}

type userList struct {
	Users []struct {
		User  string `json:"user"`
		Tasks int    `json:"tasks"`
	} `json:"users"`
}

func listed(t *testing.T, db string, args ...string) (ids []int64) {
	t.Helper()
	var l taskList
	object(t, inside(t, append([]string{"tasks", "--json", "--db", db}, args...)...).ok(t).out, &l)
	for _, x := range l.Tasks {
		ids = append(ids, x.TaskID)
	}
	return ids
}

func TestTasksUsersDelete(t *testing.T) {
	t.Parallel()
	db := twoTasks(t)
	for _, c := range []struct {
		args string
		want []int64
	}{
		{"", []int64{2, 1}},
		{"--user ada", []int64{1}},
		{"--name gemm-bob", []int64{2}},
		{"--name gemm*", []int64{2, 1}},
		{"--name gemm", nil},
		{"--since 2100-01-01", nil},
		{"--since 2020-01-01 --until 2100-01-01T00:00:00Z", []int64{2, 1}},
		{"--limit 1", []int64{2}},
		{"--limit 1 --before 2", []int64{1}},
	} {
		if got := listed(t, db, strings.Fields(c.args)...); !equal(got, c.want) {
			t.Errorf("tasks %s: %v, want %v", c.args, got, c.want)
		}
	}
	table := inside(t, "tasks", "--db", db, "--limit", "1").ok(t).out
	for _, want := range []string{`(?m)^ +2  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  bob +gemm-bob +complete +100 ms +[\d.]+ J ± [\d.]+ J +[\d.]+ W`, "--before 2"} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("no %s in\n%s", want, table)
		}
	}
	var users userList
	object(t, inside(t, "users", "--json", "--db", db).ok(t).out, &users)
	if len(users.Users) != 2 || users.Users[0].User != "ada" || users.Users[1].Tasks != 1 {
		t.Errorf("users %+v", users)
	}
	inside(t, "delete", "--db", db, "--user", "bob").fails(t, cli.ExitUsage, "--yes")
	for _, args := range []string{"--user bob --yes", "1 --yes"} {
		var n struct {
			Deleted int
			Pinned  []int64
			Undo    string
		}
		object(t, inside(t, append([]string{"delete", "--db", db, "--json"}, strings.Fields(args)...)...).ok(t).out, &n)
		if n.Deleted != 1 {
			t.Errorf("delete %s: %d deleted", args, n.Deleted)
		}
	}
	if got := listed(t, db); got != nil {
		t.Errorf("left: %v", got)
	}
	for _, args := range []string{"show 1", "delete 1", "export 1", "trim 1 --to 1s"} {
		inside(t, append([]string{"--db", db}, strings.Fields(args)...)...).fails(t, cli.ExitNotFound, "no task 1 in "+db)
	}
}

// A row of the list says what show says of the task, and nothing that it was read
// without: no verdict, rails, markers and budget.
func TestListedAsShown(t *testing.T) {
	t.Parallel()
	db := twoTasks(t)
	inside(t, "tag", "1", "cooler=water", "--db", db).ok(t)
	inside(t, "pin", "1", "--db", db).ok(t)
	inside(t, "trim", "2", "--from", "400ms", "--to", "450ms", "--db", db).ok(t)
	var list struct{ Tasks []map[string]any }
	object(t, inside(t, "tasks", "--json", "--db", db).ok(t).out, &list)
	if len(list.Tasks) != 2 {
		t.Fatalf("%d tasks", len(list.Tasks))
	}
	for _, row := range list.Tasks {
		var whole map[string]any
		object(t, inside(t, "show", fmt.Sprint(row["task_id"]), "--json", "--db", db).ok(t).out, &whole)
		for key, value := range row {
			if !reflect.DeepEqual(value, whole[key]) {
				t.Errorf("task %v: %s is %v in the list, %v in show", row["task_id"], key, value, whole[key])
			}
		}
		for _, key := range []string{"quality", "rails", "markers", "budget", "events"} {
			if value, listed := row[key]; listed {
				t.Errorf("task %v: the list has %s: %v", row["task_id"], key, value)
			}
		}
		if row["energy_j"] == nil || row["energy_u_j"] == nil || row["window"] == nil || row["instrument"] == nil || row["samples"] == 0.0 {
			t.Errorf("the list lacks figures: %v", row)
		}
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// What is exported is what the view shows, to the last digit that both print.
func TestShowAndExport(t *testing.T) {
	t.Parallel()
	db := demoDB(t, demo)
	var r report.Report
	object(t, inside(t, "show", "1", "--json", "--db", db).ok(t).out, &r)
	checkRails(t, &r)
	checkMarkers(t, &r)
	text := inside(t, "show", "1", "--budget", "--db", db).ok(t).out
	for _, want := range []string{"Task 1  demo", "total", "marker   start at", "═", "Uncertainty budget", "offset aux_12v_1.current"} {
		if !strings.Contains(text, want) {
			t.Errorf("show does not tell %q:\n%s", want, text)
		}
	}
	if short := inside(t, "show", "1", "--no-plot", "--db", db).ok(t).out; strings.Contains(short, "┤") {
		t.Errorf("a plot that was not wanted:\n%s", short)
	}

	file := filepath.Join(t.TempDir(), "out.csv")
	inside(t, "export", "1", "--format", "csv", "-o", file, "--db", db).ok(t)
	inside(t, "export", "1", "-o", file, "--db", db).fails(t, cli.ExitFailed, "exists")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out := inside(t, "export", "1", "--db", db).ok(t).out; out != string(b) {
		t.Error("the file and standard output differ")
	}
	reader := csv.NewReader(strings.NewReader(string(b)))
	reader.Comment = '#'
	rows, err := reader.ReadAll()
	if err != nil || len(rows) != int(r.Samples)+1 {
		t.Fatalf("%d rows, %v; the task has %d samples", len(rows), err, r.Samples)
	}
	if h := strings.Join(rows[0], ","); !strings.HasPrefix(h, "scan,t_s,power_w,pcie_3v3_current_a,pcie_3v3_voltage_v,pcie_3v3_power_w,pcie_12v_current_a") {
		t.Errorf("header %s", h)
	}
	compareWithView(t, db, rows[1:])
}

// compareWithView holds the scan number, slot 3.3 V and slot 12 V of every row
// against the view, which counts from the window's begin.
func compareWithView(t *testing.T, db string, rows [][]string) {
	t.Helper()
	view := strings.Split(stockSQL(t, db, "select seqNum + "+rows[0][0]+", power, current2, voltage2, current3, voltage3 from data where taskID = 1 order by seqNum"), "\n")
	if len(view) != len(rows) {
		t.Fatalf("%d rows in the view, %d exported", len(view), len(rows))
	}
	for i, line := range view {
		want := strings.Split(line, "|")
		got := []string{rows[i][0], rows[i][2], rows[i][3], rows[i][4], rows[i][6], rows[i][7]}
		for c := range got {
			a, err1 := strconv.ParseFloat(got[c], 64)
			b, err2 := strconv.ParseFloat(want[c], 64)
			if err1 != nil || err2 != nil || math.Abs(a-b) > 1e-9*(1+math.Abs(b)) {
				t.Fatalf("row %d, column %d: exported %s, in the view %s", i, c, got[c], want[c])
			}
		}
	}
}

// A task goes out as a recording, is played by a monitor, and comes back the same.
func TestExportedRecordingPlays(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newRig(t)
	r.db = demoDB(t, demo)
	folder := filepath.Join(t.TempDir(), "task.recording")
	inside(t, "export", "1", "--format", "recording", "-o", folder, "--db", r.db).ok(t)
	if _, err := os.Stat(filepath.Join(folder, exchange.HostFile)); err != nil {
		t.Error(err)
	}
	inside(t, "export", "1", "--format", "recording", "--db", r.db).fails(t, cli.ExitUsage, "name it with -o")
	m := start(t, "monitor", "--instrument", "replay", "--port", folder, "--spool", filepath.Join(t.TempDir(), "spool"), "--listen", "127.0.0.1:0")
	r.address = m.await(t, `msg="serving the bench".* address=(\S+)`)[1]
	p := r.run("--benchmark", "half", "--duration", "1s", "--name", "played", "--warm-up", "0") // longer than the task
	code := p.wait(t)
	var got report.Report
	object(t, p.out.String(), &got)
	was, _ := onlyTask(t, r.db, 1)
	is, _ := onlyTask(t, r.db, 2)
	// The markers carry the first task's tag, so they are not this one's.
	if code != cli.ExitIncomplete || got.State == "complete" || is.Scans == 0 || len(is.Setup.Channels) != len(was.Setup.Channels) {
		t.Fatalf("exit code %d, %s: %s; %d scans", code, got.State, got.Reason, is.Scans)
	}
	for i, c := range is.Setup.Channels {
		if c.Name != was.Setup.Channels[i].Name || c.Gain != was.Setup.Channels[i].Gain {
			t.Errorf("channel %d: %+v, was %+v", i, c, was.Setup.Channels[i])
		}
	}
	// One time in 256 both tasks have one tag: then the markers are too close for the work.
	if !strings.Contains(got.Reason, "another task's tag") && !strings.Contains(got.Reason, "another run's") {
		t.Errorf("the reason does not tell of the markers: %s", got.Reason)
	}
	a, b := quantities(t, r.db, "1"), quantities(t, r.db, "2")
	if a != b {
		t.Errorf("%d bytes were exported, %d other ones came back", len(a), len(b))
	}
}

// quantities are all of a task's stored watts, amperes and volts, without their
// place in time.
func quantities(t *testing.T, db, id string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(inside(t, "export", id, "--all", "--db", db).ok(t).out) {
		if fields := strings.SplitN(line, ",", 3); len(fields) == 3 && line[0] != '#' {
			out.WriteString(fields[2])
		}
	}
	return out.String()
}

// The host serves what a client that is not ours asks for.
func TestHostServes(t *testing.T) {
	t.Parallel()
	db := twoTasks(t)
	h := start(t, "host", "--db", db, "--listen", "127.0.0.1:0", "--socket", "none")
	checkHealth(t, h.await(t, `msg="serving the task database" address=(\S+)`)[1], "wattmark.v1.TaskService")
	// A second one on the same address is told so; the first one goes on.
	address := h.await(t, `address=(\S+)`)[1]
	wattmark(t, "host", "--db", db, "--listen", address).fails(t, cli.ExitFailed, "address already in use", "another wattmark host")
	checkHealth(t, address, "")
	if code := h.stop(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, &h.err)
	}
	r := newRig(t)
	checkHealth(t, r.address, "wattmark.v1.MonitorService")
	if code := r.monitor.stop(t); code != 0 {
		t.Errorf("the monitor's exit code %d", code)
	}
}

func checkHealth(t *testing.T, address, service string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil || a.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%s at %s: %v, %v", service, address, a, err)
	}
}

func TestVersionHelpCompletion(t *testing.T) {
	t.Parallel()
	if out := wattmark(t, "version").ok(t).out; !strings.HasPrefix(out, "wattmark "+cli.Release) {
		t.Errorf("version: %s", out)
	}
	var v map[string]string
	if err := json.Unmarshal([]byte(inside(t, "version", "--json").ok(t).out), &v); err != nil || !strings.HasPrefix(v["version"], cli.Release) || v["go"] == "" {
		t.Errorf("version: %v, %v", v, err)
	}
	help := inside(t, "--help").ok(t).out
	for _, c := range []string{"demo", "monitor", "host", "run", "tasks", "show", "users", "delete", "export", "trim", "replay", "emulate", "bench", "pulse", "import", "completion", "version"} {
		if !strings.Contains(help, c) {
			t.Errorf("help does not name %s", c)
		}
	}
	if out := inside(t, "help", "all").ok(t).out; !strings.Contains(out, "Exit codes") {
		t.Errorf("help all does not name the exit codes: %s", out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := inside(t, "completion", shell).ok(t).out; !strings.Contains(out, "wattmark") || len(out) < 1000 {
			t.Errorf("completion %s: %d bytes", shell, len(out))
		}
	}
	if out := inside(t, "__complete", "emulate", "").ok(t).out; !strings.Contains(out, "powersensor3\npmd\n") {
		t.Errorf("emulate completes to %s", out)
	}
}
