// Package packaging_test holds the files for installers against each other, and
// builds and unpacks the package where the tools are there.
package packaging_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

type nfpmFile struct {
	Name     string `yaml:"name"`
	Contents []struct {
		Src  string `yaml:"src"`
		Dst  string `yaml:"dst"`
		Type string `yaml:"type"`
	} `yaml:"contents"`
	Scripts map[string]string `yaml:"scripts"`
}

func readPackage(t *testing.T, name string) (p nfpmFile) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(data, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Everything that the package names is in the repository, and every file for
// installers is in the package.
func TestPackageIsWhole(t *testing.T) {
	p := readPackage(t, "nfpm.yaml")
	named := map[string]bool{}
	for _, c := range p.Contents {
		named[filepath.Clean(c.Src)] = true
		if strings.HasPrefix(c.Src, "${STAGE}/") {
			continue // it is built
		}
		if _, err := os.Stat(filepath.Join("..", c.Src)); err != nil {
			t.Errorf("%s: %v", c.Dst, err)
		}
		if strings.HasPrefix(c.Dst, "/etc/") && c.Type != "config|noreplace" {
			t.Errorf("%s: an update would replace what the operator wrote", c.Dst)
		}
	}
	if !named["monitor/bench/examples"] {
		t.Error("docs/bench-file.md points to monitor/bench/examples, which is not in the package")
	}
	for _, dir := range []string{"systemd", "udev", "sysusers", "config"} {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", dir, files, err)
		}
		for _, f := range files {
			if !named[filepath.Join("packaging", f)] {
				t.Errorf("%s is not in the package", f)
			}
		}
	}
	for _, s := range p.Scripts {
		if i, err := os.Stat(filepath.Join("..", s)); err != nil || i.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s: %v is not executable", s, err)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", filepath.Join("..", s)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", s, err, out)
		}
	}
}

// unit reads a unit's lines of one key.
func unit(t *testing.T, name, key string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		values = append(values, m[1])
	}
	return values
}

// services are all commands that run until they are stopped.
var services = []string{"monitor", "host", "relay", "store", "cluster"}

func TestUnitsFitTheProgram(t *testing.T) {
	for _, service := range services {
		name := "wattmark-" + service + ".service"
		config := "/etc/wattmark/" + service + ".yaml"
		command := strings.Replace(service, "cluster", "cluster node", 1)
		if got := unit(t, name, "ExecStart"); !slices.Equal(got, []string{"/usr/bin/wattmark " + command + " --config " + config}) {
			t.Errorf("%s starts %q", name, got)
		}
		if got := unit(t, name, "Type"); !slices.Equal(got, []string{"notify"}) {
			t.Errorf("%s: type %q: the program says when it is ready", name, got)
		}
		for key, want := range map[string]string{"ProtectSystem": "strict", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "User": "wattmark"} {
			if got := unit(t, name, key); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %s is %q", name, key, got)
			}
		}
		state := "/var/lib/" + unit(t, name, "StateDirectory")[0] + "/"
		text, err := os.ReadFile(filepath.Join("config", service+".yaml"))
		if err != nil || !strings.Contains(string(text), state) {
			t.Errorf("%s.yaml writes elsewhere than %s, all that the unit lets it: %v", service, state, err)
		}
		for _, script := range []string{"postinst", "prerm"} {
			if text, err := os.ReadFile("deb/" + script); err != nil || !strings.Contains(string(text), name) {
				t.Errorf("%s leaves %s out: %v", script, name, err)
			}
		}
	}
	stop, err := time.ParseDuration(unit(t, "wattmark-monitor.service", "TimeoutStopSec")[0])
	if err != nil || stop < 75*time.Second {
		t.Errorf("the monitor is killed after %v (%v): its drain takes a minute, and fetching and closing some seconds", stop, err)
	}
	if got := unit(t, "wattmark-monitor.service", "SupplementaryGroups"); !slices.Contains(got, "dialout") {
		t.Errorf("the monitor's groups: %q", got)
	}
}

// tool finds a program that .ci/install brings, or skips; WATTMARK_REQUIRE_TOOLS=1 asks for it.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatalf("%v, and WATTMARK_REQUIRE_TOOLS=1 asks for it", err)
	}
	if err != nil {
		t.Skipf("%s is not here", name)
	}
	return path
}

// need finds a tool, or skips.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not here", name)
	}
	return path
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, &out)
	}
	return out.String()
}

// put copies a file into a scratch root.
func put(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// systemd itself finds nothing wrong with the units.
func TestUnitsAreSound(t *testing.T) {
	analyze := need(t, "systemd-analyze")
	root := t.TempDir()
	verify := []string{"verify", "--root=" + root}
	for _, service := range services {
		verify = append(verify, "wattmark-"+service+".service")
		put(t, "systemd/wattmark-"+service+".service", filepath.Join(root, "usr/lib/systemd/system/wattmark-"+service+".service"), 0o644)
	}
	for _, target := range []string{"multi-user", "network-online", "basic", "sysinit", "shutdown", "network"} {
		from := "/usr/lib/systemd/system/" + target + ".target"
		if _, err := os.Stat(from); err != nil {
			t.Skipf("%s is not here", from)
		}
		put(t, from, filepath.Join(root, from), 0o644)
	}
	for _, program := range []string{"usr/bin/wattmark", "bin/kill"} {
		put(t, "deb/postinst", filepath.Join(root, program), 0o755) // any program does
	}
	out := command(t, "", analyze, verify...)
	if strings.Contains(out, "wattmark") {
		t.Error(out)
	}
}

var (
	link = regexp.MustCompile(`\]\(([^)#\s]+)`)
	// inSource are targets that only the source has.
	inSource = regexp.MustCompile(`^(testdata/h200|packaging|api/web|cmd/wattmark|hostagent)/`)
)

// linksLead tests that the relative links of the pages below dir lead to files there.
func linksLead(t *testing.T, dir string) {
	t.Helper()
	links := 0
	err := filepath.WalkDir(dir, func(page string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		text, err := os.ReadFile(page)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(page), m[1])
			in, _ := filepath.Rel(dir, to)
			if strings.Contains(m[1], "://") || inSource.MatchString(in) {
				continue
			}
			links++
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		return err
	})
	if err != nil || links < 100 {
		t.Errorf("%d links: %v", links, err)
	}
}

// A USB number that is in devices of many makers names none of them.
func TestUdevNamesNoInstrumentByASharedNumber(t *testing.T) {
	data, err := os.ReadFile("udev/60-wattmark.rules")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(data)) {
		for _, shared := range []string{`"0483"`, `"04d8"`, `"1a86"`} {
			if !strings.HasPrefix(line, "ATTRS") || !strings.Contains(line, shared) {
				continue
			}
			seen++
			if regexp.MustCompile(`wattmark/(powersensor3|pmd2?|powenetics)`).MatchString(line) {
				t.Errorf("it names one instrument: %s", line)
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d rules for shared numbers, want 3", seen)
	}
}

// The dashboard asks for metrics that there are, in queries that Prometheus parses.
func TestDashboard(t *testing.T) {
	var d struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	data, err := os.ReadFile("grafana/wattmark.json")
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil || len(d.Panels) < 10 {
		t.Fatal(len(d.Panels), err)
	}
	var declared []byte
	for _, source := range []string{"../api/metrics/metrics.go", "../cmd/internal/service/http.go"} {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		declared = append(declared, text...)
	}
	rules := []byte("groups:\n- name: dashboard\n  rules:\n")
	variables := strings.NewReplacer("$bench", ".*", "$__range", "1h", "$__rate_interval", "1m")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`wattmark_\w+`).FindAllString(target.Expr, -1) {
				if !bytes.Contains(declared, []byte(`"`+name+`"`)) {
					t.Errorf("%s: there is no metric %s", p.Title, name)
				}
			}
			rules = fmt.Appendf(rules, "  - record: x%d\n    expr: '%s'\n", len(rules), variables.Replace(target.Expr))
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("the queries are not parsed: there is no promtool")
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
