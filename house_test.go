// Package wattmark_test holds the rules of the house: who may import whom.
package wattmark_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rule says what the packages of an area may import of ours. An area is a
// package path below the module; the longest that fits a package counts, and a
// trailing /... takes in all packages below.
type rule struct {
	area string
	may  []string
	why  string
}

// below are the packages under the commands.
var below = []string{"measure/...", "store/...", "analysis/...", "monitor/...", "hostagent/...", "api", "api/auth/...", "api/client", "api/limits", "api/metrics", "api/reports", "api/web", "api/wire"}

// The rules of the house. Imports run one way.
var rules = []rule{
	{"internal/...", nil, "helpers of any room, which know none"},
	{"measure/...", []string{"measure/..."}, "measure is pure physics: it knows nobody"},
	{"store/...", []string{"store/...", "measure/..."}, "the database sees measure alone"},
	{"store/relay", []string{"store", "measure/..."}, "tasks travel as the database has them, whatever database it is"},
	{"store/cluster", []string{"store/relay"}, "a node keeps messages, and knows no database"},
	{"analysis/...", []string{"analysis/...", "measure/..."}, "analysis sees measure, and stored tasks through interfaces of its own"},

	{"monitor/...", []string{"monitor/...", "measure/..."}, "a monitor runs without host, database and analysis; generated types stay in its service"},
	{"monitor", []string{"monitor/...", "measure/...", "api/auth", "api/wire", "api/wattmarkv1"}, "the monitor's service speaks the protocol, and knows neither host nor database"},

	{"monitor/instrument/nidaqmx/nipb", nil, "generated"},

	{"hostagent/...", []string{"hostagent/...", "measure/...", "store"}, "the host meets the monitor in the protocol; generated types stay in its client"},
	{"hostagent/gpu/...", []string{"hostagent/gpu/...", "measure/..."}, "a GPU is driven without monitor and database"},
	{"hostagent/daemon", []string{"hostagent/...", "measure/...", "store", "api/auth", "api/wire", "api/wattmarkv1"}, "a program measures through the host's daemon in the protocol: both ends of that are here, and nothing else of it"},
	{"hostagent/monitorclient", []string{"hostagent/...", "measure/...", "store", "api/wire", "api/wattmarkv1"}, "the host's client speaks the protocol"},
	{"hostagent/live", []string{"hostagent/monitorclient", "measure/...", "store", "api/wire", "api/wattmarkv1"}, "viewers of benches go through the host in the protocol"},

	{"api/wattmarkv1", nil, "generated"},
	{"api/wire", []string{"api/wattmarkv1", "measure/..."}, "both sides of the wire use it, so it knows neither"},
	{"api/auth/...", []string{"api/auth/...", "measure"}, "certificates and signing in stand on who is who, and know no service either"},
	{"api/auth", []string{"measure"}, "both sides of the wire ask and tell who somebody is, so it knows neither, and no service"},
	{"api/client", []string{"api/wire", "api/wattmarkv1", "measure/..."}, "a client needs no database"},
	{"api/web", []string{"api/wattmarkv1", "api/web/page"}, "it serves what a connection leads to"},
	{"api/web/page", nil, "files for a browser, which asks the JSON API as any other client"},
	{"api/limits", []string{"api/wire"}, "it guards any service, and knows none"},
	{"api/metrics", []string{"store", "measure/..."}, "it counts calls of any service, the store, and watts"},
	{"api/reports", []string{"api/wire", "api/wattmarkv1", "measure/...", "store", "analysis/sensor", "analysis/validate"}, "what analysis finds is served here, and nowhere else in api"},
	{"api/...", []string{"api/...", "measure/...", "store"}, "the services stand on the store"},
	{"api/internal/convert", nil, "it writes code for those that it tests, and is used by nobody"},

	{"cmd/...", append([]string{"cmd/..."}, below...), "cmd wires; generated types stay where they are spoken"},
	{"cmd/internal/cli", append([]string{"cmd/config"}, below...), "what all commands share knows none of them"},
	{"cmd/internal/out", append([]string{"cmd/internal/cli"}, below...), "text and pictures know no command"},
	{"cmd/internal/session", append([]string{"cmd/internal/cli"}, below...), "opening a GPU, a meter and a monitor needs no command"},
	{"cmd/internal/report", append([]string{"cmd/internal/cli", "cmd/internal/out"}, below...), "a task is shown alike by every command"},
	{"cmd/internal/daemon", append([]string{"cmd/internal/cli", "cmd/internal/session", "cmd/config"}, below...), "what every service has knows no service"},
	{"cmd/internal/study/...", append([]string{
		"cmd/internal/cli", "cmd/internal/out", "cmd/internal/session", "cmd/internal/report", "cmd/internal/study/...",
		"cmd/internal/task", "cmd/internal/run", "cmd/internal/exchange", "cmd/internal/bench", "cmd/internal/cluster",
	}, below...), "a study measures and reads tasks; services and benchmarks are none of its business"},
	{"cmd/trial/...", append([]string{"cmd/trial/..."}, below...), "a trial runs the program or its parts, and shares no code with the commands"},
	{"packaging", nil, "files for installers, and their test"},
	{"", nil, "the root holds these rules only"},
}

// testMay is what the tests of an area may import beyond its rule: the other
// end of a wire, never what the area itself must not know.
var testMay = map[string][]string{
	"api/auth":   {"api/auth/pki"},
	"api/client": {"api/internal/testdb"},
	// It has the types of all that have conversions.
	"api/internal/convert": {"api/...", "measure/...", "store", "analysis/sensor", "analysis/validate", "hostagent/gpu", "hostagent/live"},
	// The services that its connection leads to on a host are others than api's alone.
	"api/web": {"api", "api/internal/testdb", "api/reports", "api/wire", "store", "measure/...", "analysis/sensor", "analysis/validate", "hostagent/live", "hostagent/monitorclient"},
	// The page is tested in a browser, before the real service.
	"api/web/page": {"api", "api/internal/testdb", "api/web", "api/wire", "measure/...", "store"},
	"api/metrics":  {"api/internal/testdb", "api/wattmarkv1"},
	"cmd/...":      {"api/wattmarkv1"},
	"store/relay":  {"store/cluster"},
	// The measurement is tested against the real monitor, over a real line.
	"hostagent/...":     {"monitor/..."},
	"hostagent/daemon":  {"monitor/..."},
	"hostagent/gpu/...": {"monitor/..."},
	"hostagent/live":    {"monitor/..."},
}

// noIO are packages that touch the world outside, which measure must not.
var noIO = []string{"os", "os/exec", "net", "net/http", "io/fs", "syscall", "database/sql", "unsafe"}

// byName are packages that call methods by name: where one is linked, the linker keeps every
// exported method of every type, a seventh of the program.
var byName = []string{"text/template", "html/template", "net/rpc"}

// withC are the only packages that may need a C compiler.
var withC = []string{"cmd/libwattmark"}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	CgoFiles                           []string
	Error                              *struct{ Err string }
}

const module = "github.com/wattmark/wattmark"

// fits reports whether a path lies in an area.
func fits(area, path string) bool {
	if base, ok := strings.CutSuffix(area, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == area
}

// ruleFor returns the rule with the narrowest area that fits; of "x/..." and
// "x" the later one in the table.
func ruleFor(path string) (best rule, ok bool) {
	for _, r := range rules {
		if fits(r.area, path) && (!ok || fits(best.area, strings.TrimSuffix(r.area, "/..."))) {
			best, ok = r, true
		}
	}
	return best, ok
}

// violations returns every import that breaks a rule, as sentences.
func violations(packages []pkg) (out []string) {
	for _, p := range packages {
		path, ours := local(p.ImportPath)
		if !ours {
			continue
		}
		r, ok := ruleFor(path)
		if !ok {
			out = append(out, fmt.Sprintf("%s lies in no area of the house: add a rule, or move it", path))
			continue
		}
		out = append(out, broken(path, p.Imports, r.may, r.why)...)
		out = append(out, broken(path+" (test)", p.TestImports, append(slices.Clone(r.may), testMay[r.area]...), r.why)...)
		out = append(out, broken(path+" (test)", p.XTestImports, append([]string{path}, append(slices.Clone(r.may), testMay[r.area]...)...), r.why)...)
		for _, i := range p.Imports {
			if slices.Contains(byName, i) {
				out = append(out, fmt.Sprintf("%s imports %s, which keeps all methods of all types in the program", path, i))
			}
		}
		if fits("measure/...", path) {
			for _, i := range p.Imports {
				if slices.Contains(noIO, i) {
					out = append(out, fmt.Sprintf("%s imports %s: measure touches nothing outside", path, i))
				}
			}
		}
		if len(p.CgoFiles) > 0 && !slices.Contains(withC, path) {
			out = append(out, fmt.Sprintf("%s needs cgo (%s): only %v may", path, p.CgoFiles[0], withC))
		}
	}
	return out
}

func broken(path string, imports, may []string, why string) (out []string) {
	for _, i := range imports {
		target, ours := local(i)
		if ours && !fits("internal/...", target) && !slices.ContainsFunc(may, func(area string) bool { return fits(area, target) }) {
			out = append(out, fmt.Sprintf("%s imports %s: %s", path, target, why))
		}
	}
	return out
}

// local takes the module's name off a path.
func local(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// list runs go list and returns what it says of each package.
func list(t *testing.T, cgo string, args ...string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// look makes the go command remember which files a verdict rests on, so that a
// cached one does not outlive a change: what go list reads is not seen by it.
func look(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportsRunOneWay(t *testing.T) {
	look(t)
	packages := list(t, "1", "./...") // with cgo, so that its files are seen
	if len(packages) < 10 {
		t.Fatalf("only %d packages: go list did not see the house", len(packages))
	}
	for _, v := range violations(packages) {
		t.Error(v)
	}
}

// Without a C compiler everything must still be there.
func TestBuildsWithoutCgo(t *testing.T) {
	for _, p := range list(t, "0", "-deps", "./...") {
		path, ours := local(p.ImportPath)
		if p.Error != nil && !(ours && slices.Contains(withC, path)) {
			t.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
	}
}

// The rules must catch what they are made for.
func TestRulesCatchViolations(t *testing.T) {
	for _, c := range []struct{ from, to, kind string }{
		{"measure/chunk", "store", ""},
		{"measure", "os", "std"},
		{"api/web", "html/template", "std"},
		{"store", "api/wattmarkv1", ""},
		{"store/internal/x", "monitor", ""},
		{"store/cluster", "store", ""},
		{"monitor", "store", ""},
		{"monitor/capture", "api/wattmarkv1", ""},
		{"monitor/instrument/nvml", "hostagent/gpu/nvml", ""},
		{"monitor/emulator/board", "analysis/recording", ""},
		{"hostagent/measurement", "monitor", ""},
		{"hostagent/measurement", "api/wattmarkv1", ""},
		{"hostagent/daemon", "monitor", ""},
		{"hostagent/daemon", "cmd/wattmark", "test"},
		{"hostagent/gpu/cuda", "store", ""},
		{"hostagent/live", "monitor/capture", ""},
		{"api/reports", "hostagent", ""},
		{"api", "analysis/validate", ""},
		{"analysis/validate", "store", ""},
		{"api/wire", "store", ""},
		{"api/client", "store", ""},
		{"api/auth", "api/wattmarkv1", ""},
		{"api/auth", "store", ""},
		{"api/auth", "api/auth/pki", ""},
		{"api/auth/signin", "api/web", ""},
		{"monitor/capture", "api/auth", ""},
		{"api", "hostagent", ""},
		{"cmd/wattmark", "api/wattmarkv1", ""},
		{"cmd/internal/cli", "cmd/internal/out", ""},
		{"cmd/internal/report", "cmd/internal/task", ""},
		{"cmd/internal/study/tiny", "cmd/internal/service", ""},
		{"cmd/trial", "cmd/internal/session", ""},
		{"elsewhere", "measure", ""},
		{"store", "monitor", "test"},
		{"measure", "store", "xtest"},
	} {
		p := pkg{ImportPath: module + "/" + c.from}
		target := module + "/" + c.to
		switch c.kind {
		case "std":
			p.Imports = []string{c.to}
		case "test":
			p.TestImports = []string{target}
		case "xtest":
			p.XTestImports = []string{target}
		default:
			p.Imports = []string{target}
		}
		if len(violations([]pkg{p})) == 0 {
			t.Errorf("%s may import %s (%s)", c.from, c.to, c.kind)
		}
	}
	for _, c := range [][2]string{
		{"monitor", "api/wattmarkv1"},
		{"hostagent/monitorclient", "api/wire"},
		{"hostagent/daemon", "api/wattmarkv1"},
		{"store", "measure/chunk"},
		{"cmd/wattmark", "monitor/capture"},
		{"api", "store"},
		{"api/internal/testdb", "api"},
	} {
		if v := violations([]pkg{{ImportPath: module + "/" + c[0], Imports: []string{module + "/" + c[1]}}}); len(v) > 0 {
			t.Errorf("refused without reason: %v", v)
		}
	}
	if len(violations([]pkg{{ImportPath: module + "/store", CgoFiles: []string{"x.go"}}})) == 0 {
		t.Error("cgo in the store was not noticed")
	}
}

// A program that was built in the tree must not be committed with it.
func TestNoProgramsInTheTree(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("not a git checkout: ", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(b, []byte("\x7fELF")) || len(b) > 2<<20 {
			t.Errorf("%s is a program, or larger than 2 MiB", name)
		}
	}
}
