package perfetto_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Chromium writes traces with Perfetto's own library. That packets of one can be
// read with the schema of these tests says that its numbers are Perfetto's. With
// WATTMARK_CHROMIUM=record the packets are recorded anew.
func TestSchemaReadsChromiumsTrace(t *testing.T) {
	const kept = "testdata/chromium.pftrace"
	if os.Getenv("WATTMARK_CHROMIUM") == "record" {
		if err := os.WriteFile(kept, excerpt(t, recordChromium(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, raw)
	seen := map[string]int{}
	for _, p := range all {
		for _, f := range features(p) {
			seen[f]++
		}
	}
	t.Logf("%d packets, %v", len(all), seen)
	for _, f := range []string{"time of day", "primary clock", "thread", "counter track", "below another", "names", "named event", "begin", "end", "instant", "counter", "text"} {
		if seen[f] == 0 {
			t.Errorf("no packet of Chromium's has a %s under our numbers", f)
		}
	}
}

// recordChromium lets Chromium trace its own start.
func recordChromium(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "own.pftrace")
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless=new", "--no-sandbox", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--trace-startup=*", "--trace-startup-format=proto", "--trace-startup-file="+file, "--trace-startup-duration=3",
		"--virtual-time-budget=5000", "--screenshot="+filepath.Join(dir, "x.png"), "data:text/html,<p>x")
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.CombinedOutput()
	raw, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatalf("chromium wrote no trace: %v\n%s", err, said)
	}
	return raw
}

// excerpt keeps a few packets of each kind, none that names a file.
func excerpt(t *testing.T, raw []byte) (out []byte) {
	t.Helper()
	seen := map[string]int{}
	for len(raw) > 0 {
		_, _, k := protowire.ConsumeField(raw)
		if k < 0 {
			t.Fatal(protowire.ParseError(k))
		}
		one := raw[:k]
		raw = raw[k:]
		if p := decode(t, one); len(one) < 2000 && len(p) == 1 && !bytes.ContainsRune(one, '/') {
			fresh := false
			for _, f := range features(p[0]) {
				seen[f]++
				fresh = fresh || seen[f] <= 4
			}
			if fresh {
				out = append(out, one...)
			}
		}
	}
	return out
}

// features are what a packet shows of Perfetto's schema.
func features(p msg) (out []string) {
	add := func(yes bool, name string) {
		if yes {
			out = append(out, name)
		}
	}
	if s := p.sub("clock_snapshot"); p.has("clock_snapshot") {
		add(s.has("primary_trace_clock"), "primary clock")
		for _, c := range s.all("clocks") {
			at := time.Unix(0, c.uint("timestamp"))
			add(c.uint("clock_id") == 1 && at.Year() >= 2020 && at.Year() < 2100, "time of day")
		}
	}
	if d := p.sub("track_descriptor"); p.has("track_descriptor") {
		add(strings.Contains(d.sub("thread").text("thread_name"), "Main"), "thread")
		add(d.has("counter") && d.text("name") != "" || d.sub("counter").text("unit_name") != "", "counter track")
		add(d.uint("parent_uuid") != 0, "below another")
	}
	for _, n := range p.sub("interned_data").all("event_names") {
		add(n.uint("iid") > 0 && n.text("name") != "", "names")
	}
	if e := p.sub("track_event"); p.has("track_event") {
		kind := map[int64]string{1: "begin", 2: "end", 3: "instant", 4: "counter"}[e.uint("type")]
		add(kind != "" && p.has("timestamp"), kind)
		add(e.uint("name_iid") != 0, "named event")
		for _, a := range e.all("debug_annotations") {
			add(a.text("string_value") != "" && (a.uint("name_iid") != 0 || a.text("name") != ""), "text")
		}
	}
	return out
}
