package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/doctor"
	"github.com/wattmark/wattmark/cmd/internal/top"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/monitor/checkup"
)

// benchWords holds the reports of doctor, top, probe and check on one bench.
type benchWords struct {
	doctor       doctor.DoctorReport
	top          top.TopReport
	probe, check bench.ProbeJSON
	probed       result
	checked      result
	judged       struct {
		Findings []struct{ Level, Subject, Text, Remedy string }
	}
}

// found are the doctor's findings of a check.
func (w *benchWords) found(check string) (list []doctor.Finding) {
	for _, f := range w.doctor.Findings {
		if f.Check == check {
			list = append(list, f)
		}
	}
	return list
}

// faulty are the faults that instruments check finds in rails and channels, as the doctor words them. The
// rate at which samples arrive is this machine's to hold.
func (w *benchWords) faulty() (list []doctor.Finding) {
	for _, f := range w.judged.Findings {
		if f.Level == "fault" && f.Subject != "" {
			list = append(list, doctor.Finding{Check: "rails", Level: "fail", Found: f.Subject + " " + f.Text, Remedy: f.Remedy})
		}
	}
	return list
}

// allOf asks the four commands.
func allOf(t *testing.T, r *rig, file string) (w benchWords) {
	t.Helper()
	read := func(x result, into ...any) result {
		t.Helper()
		for _, v := range into {
			if err := json.Unmarshal([]byte(x.out), v); err != nil && x.out != "" {
				t.Fatalf("%v\n%s%s", err, x.out, x.err)
			}
		}
		return x
	}
	read(inside(t, "doctor", "--json", "--machine", "monitor", "--monitor", r.address, "--bench", file, "--spool", r.spool), &w.doctor)
	read(inside(t, "top", "--once", "--json", "--monitor", r.address).ok(t), &w.top)
	w.probed = read(inside(t, "instruments", "probe", "--bench", file, "--for", "200ms", "--json"), &w.probe)
	w.checked = read(inside(t, "instruments", "check", "--bench", file, "--for", "500ms", "--json"), &w.check, &w.judged)
	return w
}

// sampled checks that all four have the meter, the rails, the calibration and the watts alike.
func (w *benchWords) sampled(t *testing.T) {
	t.Helper()
	if list := w.found("instrument"); len(list) != 1 || list[0].Level != "ok" || w.top.Trouble != "" || !w.top.Sampled || w.probed.code != 0 {
		t.Fatalf("doctor %+v, top %+v, probe %+v", list, w.top, w.probed)
	}
	scale := "nominal scale, no calibration record in force"
	if n := len(w.probe.Records); n > 0 {
		scale = fmt.Sprintf("%d calibration record in force (%s)", n, strings.Join(w.probe.Records, ", "))
	}
	if text := w.found("instrument")[0].Found; !strings.Contains(text, fmt.Sprintf("%d rails, %s", len(w.probe.Rails), scale)) {
		t.Errorf("doctor: %q; probe: %d rails, %s", text, len(w.probe.Rails), scale)
	}
	for name, p := range map[string]struct {
		id      string
		records []string
	}{"check": {w.check.CalibrationID, w.check.Records}, "top": {w.top.CalibrationID, w.top.Records}} {
		if p.id != w.probe.CalibrationID || p.records == nil || !slices.Equal(p.records, w.probe.Records) {
			t.Errorf("%s: calibration %s by %q; probe: %s by %q", name, p.id, p.records, w.probe.CalibrationID, w.probe.Records)
		}
	}
	if got, want := w.found("rails"), w.faulty(); !slices.Equal(unread(got), unread(want)) {
		t.Errorf("doctor: %+v; check: %+v", got, want)
	}
	if len(w.top.Rails) != len(w.probe.Rails) || len(w.check.Rails) != len(w.probe.Rails) {
		t.Fatalf("top %+v, check %+v, probe %+v", w.top.Rails, w.check.Rails, w.probe.Rails)
	}
	const scans = 1000 // of top's average, 50 ms
	for i, r := range w.probe.Rails {
		var s checkup.Spread = r.Power
		noise := 5 * s.Deviation * math.Sqrt(1./scans+1/float64(w.probe.Scans))
		for name, x := range map[string]struct {
			rail string
			w    float64
		}{"check": {w.check.Rails[i].Name, w.check.Rails[i].Power.Mean}, "top": {w.top.Rails[i].Rail, float64(w.top.Rails[i].Power)}} {
			if x.rail != r.Name || math.Abs(x.w-s.Mean) > noise {
				t.Errorf("%s: %s %v W; probe: %s %v ± %v W", name, x.rail, x.w, r.Name, s.Mean, noise)
			}
		}
	}
}

// unread leaves out the millivolts that a rail reads, which are noise.
func unread(list []doctor.Finding) []doctor.Finding {
	list = slices.Clone(list)
	for i, f := range list {
		rail, rest, _ := strings.Cut(f.Found, " reads ")
		_, supply, _ := strings.Cut(rest, ", ")
		list[i].Found = rail + ": " + supply
	}
	return list
}

// lost checks that all four name the same reason why the meter cannot be used.
func (w *benchWords) lost(t *testing.T) {
	t.Helper()
	_, reason, _ := strings.Cut(strings.TrimSpace(w.probed.err), "wattmark: ")
	if w.probed.code == 0 || !strings.Contains(reason, "is the device plugged in?") || w.checked.code == 0 || !strings.Contains(w.checked.err, reason) {
		t.Errorf("probe %+v, check %+v", w.probed, w.checked)
	}
	if list := w.found("instrument"); len(list) != 1 || list[0].Level != "fail" || !strings.Contains(list[0].Found, reason) {
		t.Errorf("doctor %+v; probe %s", list, reason)
	}
	if w.top.Sampled || len(w.top.Rails) != 0 || !strings.Contains(w.top.Trouble, reason) {
		t.Errorf("top %+v; probe %s", w.top, reason)
	}
}

// Doctor, probe, check and top state the same of a monitor's bench, whatever happens to it.
func TestAllWhoLookAtABenchAgree(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	r := newMeter(t)
	file := filepath.Join(t.TempDir(), "bench.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(ps3Bench, r.link)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.monitor = start(t, "monitor", "--bench", file, "--spool", r.spool, "--listen", "127.0.0.1:0")
	r.address = r.monitor.await(t, `msg="serving the bench".* address=(\S+)`)[1]

	w := allOf(t, r, file)
	w.sampled(t)
	if len(w.faulty()) != 0 || len(w.probe.Records) != 0 {
		t.Errorf("a bench without faults: %+v, %q", w.faulty(), w.probe.Records)
	}
	before := float64(w.top.Rails[2].Current)

	inside(t, "calibrate", "gain", "--bench", file, "--channel", "aux_12v_1.current", "--value", fmt.Sprintf("%.4fA", 0.85*before), "--u", "1%", "--for", "300ms", "--by", "ada", "--yes").ok(t)
	w = allOf(t, r, file)
	w.sampled(t)
	if after := float64(w.top.Rails[2].Current); len(w.probe.Records) != 1 || math.Abs(after/before-0.85) > 0.05 {
		t.Errorf("calibrated: %v A by %q, it was %v A", after, w.probe.Records, before)
	}

	r.unplug()
	w = allOf(t, r, file)
	w.lost(t)

	r.plug()
	w = allOf(t, r, file)
	w.sampled(t)
	if len(w.faulty()) != 0 || len(w.probe.Records) != 1 {
		t.Errorf("plugged in again: %+v, %q", w.faulty(), w.probe.Records)
	}

	inside(t, "emulate", "connect", "nothing", "--rail", "aux_12v_1", "--gpu", r.socket).ok(t)
	w = allOf(t, r, file)
	w.sampled(t)
	if f := w.faulty(); len(f) != 1 || !strings.HasPrefix(f[0].Found, "aux_12v_1 ") || w.doctor.Failed == 0 || w.checked.code == 0 {
		t.Errorf("a rail without a supply: check %+v (%d), doctor %+v", f, w.checked.code, w.doctor)
	}
}
