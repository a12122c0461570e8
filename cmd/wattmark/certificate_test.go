package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/certificate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	sensorcmd "github.com/wattmark/wattmark/cmd/internal/study/sensor"
	"github.com/wattmark/wattmark/internal/coverage"
)

// labKey makes a key and returns its path.
func labKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "lab.key")
	inside(t, "certificate", "key", key, "--issuer", "Test lab").ok(t)
	return key
}

// certified makes a certificate of a recording of testdata/h200, and returns its path.
func certified(t *testing.T, key, name, field string) string {
	t.Helper()
	dir := filepath.Join("..", "..", "testdata", "h200", name)
	out := filepath.Join(t.TempDir(), "x.certificate.json")
	args := []string{"certificate", "make", "--key", key, "--field", field, "-o", out}
	switch name {
	case "load":
		args = append(args, "--readings", filepath.Join(dir, "readings.csv"), "--events", filepath.Join(dir, "events.csv"))
	case "alternate":
		args = append(args, "--readings", filepath.Join(dir, "nvml-power.csv"), "--events", filepath.Join(dir, "kernel-events.csv"))
	default:
		args = append(args, "--recording", dir)
	}
	if name == "load" || name == "alternate" {
		args = append(args, "--gpu", "GPU-of-it", "--gpu-name", "NVIDIA H200", "--driver", "580.159.04")
	}
	inside(t, args...).ok(t)
	return out
}

// python runs the second verifier.
func python(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	c := exec.CommandContext(t.Context(), "python3", append([]string{"-m", "wattmark.certificate"}, args...)...)
	c.Env = append(os.Environ(), "PYTHONPATH=../../api/python/src", "PYTHONDONTWRITEBYTECODE=1")
	b, err := c.CombinedOutput()
	return string(b), err
}

// TestCertificatesOfRecordings certifies every recording of a sensor and holds both
// verifiers against each; a short test, two of them.
func TestCertificatesOfRecordings(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	key := labKey(t)
	names := []string{
		"pulse instant", "load average", "load instant", "load usage", "alternate instant", "alternate average",
		"memory instant", "compute instant", "half instant", "pulse2 instant",
	}
	for i := 1; i <= 8; i++ {
		names = append(names, fmt.Sprintf("markers/%d instant", i))
	}
	if !coverage.Slow {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, field, _ := strings.Cut(name, " ")
			file := certified(t, key, dir, field)
			dir = filepath.Join("..", "..", "testdata", "h200", dir)
			var r sensorcmd.VerifyReport
			object(t, inside(t, "certificate", "verify", file, "--json", "--certificate-key", key+".pub", "--recordings", dir).ok(t).out, &r)
			if !r.Trusted || r.Files < 2 || len(r.Figures) < 4 || r.Issuer != "Test lab" {
				t.Errorf("%+v", r)
			}
			if out, err := python(t, file, "--key", key+".pub", "--recordings", dir); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestBothVerifiersRefuse: what one refuses, the other refuses for the same reason.
func TestBothVerifiersRefuse(t *testing.T) {
	t.Parallel()
	noRaces(t)
	key, other := labKey(t), labKey(t)
	file := certified(t, key, "pulse", "instant")
	pub := []string{"--certificate-key", key + ".pub"}
	from := filepath.Join("..", "..", "testdata", "h200", "pulse")
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	edit := func(path, old, by string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), filepath.Base(path))
		if err := os.WriteFile(to, []byte(strings.Replace(string(b), old, by, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		return to
	}
	scans := edit(filepath.Join(changed, "scans.csv"), "\n2,", "\n2,1")
	if err := os.Rename(scans, filepath.Join(changed, "scans.csv")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var e struct{ Payload string }
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	// One letter of the payload, in a number of the body.
	middle := e.Payload[len(e.Payload)/2-8 : len(e.Payload)/2]
	tampered := edit(file, middle, map[bool]string{true: "B", false: "A"}[middle[0] == 'A']+middle[1:])
	line, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.SplitN(string(line), " ", 4)
	words[2] = "2026-01-01T00:00:00Z"
	expired := filepath.Join(t.TempDir(), "lab.pub")
	if err := os.WriteFile(expired, []byte(strings.Join(words, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, reason string
		ours, theirs []string
	}{
		{"a byte", "", append([]string{tampered}, pub...), []string{tampered, "--key", key + ".pub"}},
		{"an expired key", "expired on 2026-01-01", []string{file, "--certificate-key", expired}, []string{file, "--key", expired}},
		{"another key", "it was signed by ", []string{file, "--certificate-key", other + ".pub"}, []string{file, "--key", other + ".pub"}},
		{"another driver", "driver", append([]string{file, "--driver", "590.1"}, pub...), []string{file, "--driver", "590.1"}},
		{"another GPU", "of GPU", append([]string{file, "--gpu", "GPU-0"}, pub...), []string{file, "--gpu", "GPU-0"}},
		{"another recording", "scans.csv is not the file", append([]string{file, "--recordings", changed}, pub...), []string{file, "--recordings", changed}},
	} {
		r := inside(t, append([]string{"certificate", "verify"}, c.ours...)...)
		if r.code != cli.ExitFailed || !strings.Contains(r.err, "certificate refused") || !strings.Contains(r.err, c.reason) {
			t.Errorf("%s: exit code %d\n%s", c.name, r.code, r.err)
		}
		if out, err := python(t, c.theirs...); err == nil || !strings.Contains(out, "refused:") || !strings.Contains(out, c.reason) {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
	}
}

// TestCertificateInUse: plan and correct take the sensor from a certificate; a task of
// another GPU refuses it.
func TestCertificateInUse(t *testing.T) {
	t.Parallel()
	noRaces(t)
	key := labKey(t)
	file := certified(t, key, "pulse", "instant")
	use := []string{"--certificate", file, "--certificate-key", key + ".pub"}
	var plan sensorcmd.SensorPlanReport
	object(t, inside(t, append([]string{"sensor", "plan", "--length", "20ms", "--until-u", "0.1", "--json"}, use...)...).ok(t).out, &plan)
	if p := plan.Profile; p.Driver != "580.159.04" || p.Field != "instant" || p.Tau < 5e-3 || plan.Plan.Trials < 2 {
		t.Errorf("%+v", plan)
	}
	db := filepath.Join(t.TempDir(), "power.db")
	goldenDatabase(t, db)
	for _, command := range []string{"correct", "validate"} {
		r := inside(t, append([]string{command, "10", "--db", db}, use...)...)
		if r.code != cli.ExitFailed || !strings.Contains(r.err, certificate.ErrRefused.Error()) {
			t.Errorf("%s: exit code %d\n%s%s", command, r.code, r.out, r.err)
		}
	}
	var list struct{ Certificates []sensorcmd.ListedCertificate }
	object(t, inside(t, "certificate", "list", filepath.Dir(file), "--json").ok(t).out, &list)
	if len(list.Certificates) != 1 || list.Certificates[0].Issuer != "Test lab" {
		t.Errorf("%+v", list)
	}
}

// TestCertificateOfATask rests on files that --evidence writes of a stored task.
func TestCertificateOfATask(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	db, key, file := filepath.Join(dir, "power.db"), labKey(t), filepath.Join(dir, "t.certificate.json")
	goldenDatabase(t, db)
	inside(t, "certificate", "make", "--task", "10", "--db", db, "--field", "instant", "--evidence", filepath.Join(dir, "e"), "--key", key, "-o", file).ok(t)
	var r sensorcmd.VerifyReport
	object(t, inside(t, "certificate", "verify", file, "--json", "--certificate-key", key+".pub", "--recordings", filepath.Join(dir, "e")).ok(t).out, &r)
	if r.Files != 2 || len(r.Figures) < 4 {
		t.Errorf("%+v", r)
	}
}
