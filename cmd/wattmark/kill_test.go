package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// measuring starts a measurement of a program that ends when end is called, and waits until the
// program runs and some of its samples are safe in the database.
func (r *rig) measuring(chunks uint64) (p *process, end func()) {
	r.t.Helper()
	fifo := filepath.Join(r.t.TempDir(), "end")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		r.t.Fatal(err)
	}
	p = r.run("--name", "hit", "--", "cat", fifo)
	p.await(r.t, "running the work")
	program, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the program reads
	if err != nil {
		r.t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = program.Close() })
	r.t.Cleanup(end)
	eventually(r.t, "samples are stored while the work runs", func() bool {
		x, ok := onlyTask(r.t, r.db, 1)
		return ok && x.Chunks >= chunks
	})
	return p, end
}

// kill -9 of the monitor during a capture: what was acknowledged is there, and
// the task says where its samples end.
func TestKilledMonitorDuringACapture(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, end := r.measuring(3)
	acknowledged := chunks(t, r.db, 1)
	r.monitor.kill(t)
	r.startMonitor(r.address)
	r.monitor.await(t, `msg="capture was interrupted".* reason="monitor restarted`)
	end()
	if code := p.wait(t); code != cli.ExitIncomplete {
		t.Errorf("exit code %d, want %d", code, cli.ExitIncomplete)
	}
	var got report.Report
	object(t, p.out.String(), &got)
	m := regexp.MustCompile(`monitor restarted; .*no samples after scan (\d+) \(t = [\d.]+ s\)`).FindStringSubmatch(got.Reason)
	if got.State != "incomplete" || m == nil {
		t.Fatalf("%s: %s", got.State, got.Reason)
	}
	all := chunks(t, r.db, 1)
	if len(all) < len(acknowledged) || !slices.Equal(all[:len(acknowledged)], acknowledged) {
		t.Errorf("acknowledged %v, there is %v", acknowledged, all)
	}
	last := all[len(all)-1]
	if end := last.first + uint64(last.scans) - 1; m[1] != strconv.FormatUint(end, 10) {
		t.Errorf("%s; the last stored scan is %d", got.Reason, end)
	}
	if cs := r.captures(); len(cs) != 0 {
		t.Errorf("captures left on the monitor: %+v", cs)
	}
	r.free()
}

// kill -9 of the host during the transfer: the capture has ended on the
// monitor, the host has some of it and never hears the rest.
func TestKilledHostDuringTheTransfer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	direct := r.address
	line := newProxy(t, direct)
	r.address = line.l.Addr().String()
	p, end := r.measuring(2)
	line.gate.Lock() // from here on the host hears nothing
	r.address = direct
	end()
	eventually(t, "the capture has ended on the monitor", func() bool {
		cs := r.captures()
		return len(cs) == 1 && cs[0].State == session.Complete
	})
	p.kill(t)
	line.gate.Unlock()
	before := chunks(t, r.db, 1)
	if x, _ := onlyTask(t, r.db, 1); x.State != store.Running {
		t.Fatalf("state %v when the host was killed: %s", x.State, x.Reason)
	}

	h := start(t, "host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", "none")
	h.await(t, `msg="finished a task that was interrupted" task=1`)
	x, _ := onlyTask(t, r.db, 1)
	if x.State != store.Complete || x.Result == nil || x.Result.Gaps != 0 {
		t.Fatalf("state %v: %s; result %+v", x.State, x.Reason, x.Result)
	}
	all := chunks(t, r.db, 1)
	if len(all) <= len(before) || !slices.Equal(all[:len(before)], before) {
		t.Errorf("before %v, after %v", before, all)
	}
	if e := float64(x.Result.Total.Energy); relative(e, r.truth(1)) > 0.005 {
		t.Errorf("%v J, truth %v J", e, r.truth(1))
	}
	if cs := r.captures(); len(cs) != 0 {
		t.Errorf("captures left on the monitor: %+v", cs)
	}
	if code := h.stop(t); code != 0 {
		t.Errorf("the host ended with %d\n%s", code, &h.err)
	}
	r.free()
}

// A cable that is pulled and stays out ends the capture where it was pulled.
func TestPulledCable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, end := r.measuring(2)
	r.unplug()
	end()
	if code := p.wait(t); code != cli.ExitIncomplete {
		t.Errorf("exit code %d, want %d", code, cli.ExitIncomplete)
	}
	var got report.Report
	object(t, p.out.String(), &got)
	t.Log(got.Reason)
	all := chunks(t, r.db, 1)
	last := all[len(all)-1]
	want := "no samples after scan " + strconv.FormatUint(last.first+uint64(last.scans)-1, 10) + " "
	if got.State != "incomplete" || !strings.Contains(got.Reason, want) || !strings.Contains(got.Reason, r.link) {
		t.Errorf("%s: %s\nwant %q and the port", got.State, got.Reason, want)
	}
	r.plug()
	r.free()
}

// A cable that is put in again leaves a gap that is told.
func TestPulledCableComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, end := r.measuring(2)
	r.unplug()
	r.monitor.await(t, `level=WARN msg="instrument was lost`)
	r.plug()
	r.monitor.await(t, `msg="instrument is back"`)
	end()
	if code := p.wait(t); code != cli.ExitIncomplete {
		t.Errorf("exit code %d, want %d", code, cli.ExitIncomplete)
	}
	var got report.Report
	object(t, p.out.String(), &got)
	t.Log(got.Reason, got.Events)
	if got.State != "incomplete" || got.Gaps != 1 || got.Lost == 0 || got.Markers.Start == nil || got.Markers.Stop == nil {
		t.Errorf("%s: %s\n%d gaps, %d lost", got.State, got.Reason, got.Gaps, got.Lost)
	}
	all := chunks(t, r.db, 1) // holds the hole against the gap that is told
	if len(all) < 3 {
		t.Errorf("%d chunks", len(all))
	}
}
