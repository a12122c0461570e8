package packaging_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

const archive = "wattmark-1.2.3-linux-" + runtime.GOARCH

// nfpm is the packager, or the reason that there is none.
func nfpm(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("NFPM"); path != "" {
		return path
	}
	path, err := filepath.Abs("../bin/nfpm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil && os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal("nfpm is not here, and WATTMARK_REQUIRE_TOOLS=1 asks for it: .ci/install brings it")
	} else if err != nil {
		t.Skip("nfpm is not here: make deb installs it into bin, or name it with NFPM")
	}
	return path
}

var (
	released sync.Once
	// folder has the release for this machine, and below unpacked its archive.
	folder string
)

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// release makes the release for this machine's architecture, once for all tests, and returns
// its folder.
func release(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it links the program")
	}
	packager := nfpm(t)
	for _, name := range []string{"make", "git", "tar", "gzip"} {
		tool(t, name)
	}
	released.Do(func() {
		var err error
		if folder, err = os.MkdirTemp("", "wattmark-release-"); err != nil {
			t.Fatal(err)
		}
		command(t, "..", "make", "release", "ARCHES="+runtime.GOARCH, "LIBRARY=", "VERSION=1.2.3", "RELEASE="+folder, "NFPM="+packager)
		if err := os.Mkdir(filepath.Join(folder, "unpacked"), 0o755); err != nil {
			t.Fatal(err)
		}
		command(t, folder, "tar", "-xzf", archive+".tar.gz", "-C", "unpacked")
	})
	if _, err := os.Stat(filepath.Join(folder, "unpacked", archive, "bin/wattmark")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// The archive unpacks, its program runs, the links of its README resolve, and it is what its checksums and
// its bill of materials name.
func TestRelease(t *testing.T) {
	coverage.Long(t)
	dir := release(t)
	root := filepath.Join(dir, "unpacked", archive)
	if out := command(t, root, "bin/wattmark", "version"); !strings.HasPrefix(out, "wattmark ") {
		t.Error(out)
	}
	linksLead(t, root)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	links := link.FindAllStringSubmatch(string(readme), -1)
	if err != nil || len(links) < 20 {
		t.Errorf("%d links: %v", len(links), err)
	}
	for _, m := range links {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Error(err)
		}
	}
	for _, f := range []string{
		"share/man/man1/wattmark-run.1.gz", "docs/benches/powersensor3.yaml", "LICENSE", "packaging/config/bench.yaml",
		"packaging/systemd/wattmark-host.service", "share/bash-completion/completions/wattmark",
		"share/zsh/site-functions/_wattmark", "share/fish/vendor_completions.d/wattmark.fish",
	} {
		if i, err := os.Stat(filepath.Join(root, f)); err != nil || i.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	texts, err := os.ReadFile(filepath.Join(root, "packaging/licences.txt"))
	for _, module := range []string{"google.golang.org/grpc", "modernc.org/sqlite", "github.com/golang/freetype"} {
		if err != nil || !bytes.Contains(texts, []byte("\n"+module+" v")) {
			t.Errorf("the licence of %s is not there: %v", module, err)
		}
	}
	command(t, dir, "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil || bytes.Count(sums, []byte("\n")) != 3 {
		t.Errorf("want an archive, a bill and a package: %v\n%s", err, sums)
	}
	billNames(t, filepath.Join(dir, archive+".cdx.json"), filepath.Join(root, "bin/wattmark"))
}

// billNames tests that a bill of materials is that of a program.
func billNames(t *testing.T, bill, program string) {
	t.Helper()
	var b struct {
		Metadata struct {
			Component struct {
				Version string
				Hashes  []struct{ Content string }
			}
		}
		Components []struct{ Name, Version string }
	}
	data, err := os.ReadFile(bill)
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	sum := sha256.Sum256(text)
	c := b.Metadata.Component
	if err != nil || c.Version != "1.2.3" || len(c.Hashes) != 1 || c.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("%v, %+v", err, c)
	}
	var names []string
	for _, m := range b.Components {
		names = append(names, m.Name)
	}
	out := command(t, "", "go", "version", "-m", program)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" && !slices.Contains(names, f[1]) {
			t.Errorf("the bill lacks %s", f[1])
		}
	}
	if len(names) < 40 {
		t.Errorf("only %d parts: %v", len(names), names)
	}
}

// The same program packed by another account, in another place and zone, gives the same bytes.
func TestReleaseIsReproducible(t *testing.T) {
	coverage.Long(t)
	first := release(t)
	second := t.TempDir()
	put(t, filepath.Join(first, "unpacked", archive, "bin/wattmark"), filepath.Join(second, "build", runtime.GOARCH), 0o755)
	// As the Makefile has it, unless this test was given one.
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		epoch = strings.TrimSpace(command(t, "..", "git", "log", "-1", "--format=%ct"))
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", `umask 077 && exec packaging/pack "$@"`, "sh", runtime.GOARCH, "1.2.3", second)
	c.Dir = ".."
	c.Env = append(os.Environ(), "NFPM="+nfpm(t), "SOURCE_DATE_EPOCH="+epoch, "TZ=Asia/Tokyo", "LC_ALL=C", "USER=eve",
		"TMPDIR="+t.TempDir(), "WATTMARK_DB=/srv/power.db")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{archive + ".tar.gz", archive + ".cdx.json", "wattmark_1.2.3_" + runtime.GOARCH + ".deb"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(second, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not the same: %v", name, err)
		}
	}
}

// The package installs, updates, goes, and is purged, in a root of its own: an operator's
// configuration stays until the purge, measurements stay beyond it. Its scripts run, and see
// by DPKG_ROOT that the root is not this machine's.
func TestDebianPackage(t *testing.T) {
	coverage.Long(t)
	dir := release(t)
	deb, dpkg := tool(t, "dpkg-deb"), tool(t, "dpkg")
	first := filepath.Join(dir, "wattmark_1.2.3_"+runtime.GOARCH+".deb")
	info := command(t, "", deb, "-I", first)
	for _, w := range []string{"Package: wattmark", "Version: 1.2.3", "Recommends: libwattmark", "postinst", "prerm", "conffiles"} {
		if !strings.Contains(info, w) {
			t.Errorf("%q is not there:\n%s", w, info)
		}
	}
	root := filepath.Join(t.TempDir(), "root")
	for _, d := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"var/lib/dpkg/status": "", "var/lib/dpkg/available": "", "var/lib/wattmark/power.db": "tasks", "etc/issue": ""} {
		write(t, filepath.Join(root, name), text)
	}
	do := func(args ...string) {
		t.Helper()
		command(t, "", dpkg, append([]string{
			"--root=" + root, "--force-script-chrootless", "--force-not-root", "--force-depends",
			"--force-confold", "--log=" + filepath.Join(root, "log"),
		}, args...)...)
	}
	do("--install", first)
	for _, c := range readPackage(t, "nfpm.yaml").Contents {
		if _, err := os.Stat(filepath.Join(root, c.Dst)); err != nil {
			t.Error(err)
		}
	}
	linksLead(t, filepath.Join(root, "usr/share/doc/wattmark"))
	if _, err := exec.LookPath("systemd-sysusers"); err == nil {
		if text, err := os.ReadFile(filepath.Join(root, "etc/passwd")); err != nil || !strings.Contains(string(text), "wattmark:") {
			t.Errorf("there is no user wattmark: %v\n%s", err, text)
		}
	}
	host, bench := filepath.Join(root, "etc/wattmark/host.yaml"), filepath.Join(root, "etc/wattmark/bench.yaml")
	write(t, host, "db: /srv/power.db\n")

	do("--install", nextVersion(t, dir))
	holds(t, host, "db: /srv/power.db\n") // the operator's, though the package has another one, too
	holds(t, bench, "# of 1.2.4\n")       // unchanged by the operator, so replaced
	do("--remove", "wattmark")
	holds(t, host, "db: /srv/power.db\n")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/wattmark")); err == nil {
		t.Error("the program is still there")
	}
	do("--purge", "wattmark")
	if left, err := filepath.Glob(filepath.Join(root, "etc/wattmark*")); err != nil || len(left) > 0 {
		t.Errorf("after the purge: %v, %v", left, err)
	}
	holds(t, filepath.Join(root, "var/lib/wattmark/power.db"), "tasks")
}

// The library's package has the loader's name, the linker's, and a description by which a
// compiler finds both; the program finds the library beside it. The library is a stand-in: the
// real one is tested in its own package.
func TestLibraryPackage(t *testing.T) {
	dir, root := release(t), filepath.Join(t.TempDir(), "root")
	cc, deb := tool(t, "gcc"), tool(t, "dpkg-deb")
	write(t, filepath.Join(root, "stub.c"), "const char *wm_error(void) { return \"the stand-in\"; }\n")
	write(t, filepath.Join(root, "program.c"), "#include <stdio.h>\n#include <wattmark.h>\nint main(void) { return puts(wm_error()) < 0; }\n")
	command(t, root, cc, "-shared", "-fPIC", "-Wl,-soname,libwattmark.so.0", "-o", "libwattmark.so.0", "stub.c")
	arch := strings.TrimSpace(command(t, "", cc, "-print-multiarch"))
	lib := filepath.Join("/usr/lib", arch)
	stage := filepath.Join(root, "stage")
	command(t, "..", "make", "-s", "-o", "lib", "install-lib", "LIB="+root, "DESTDIR="+stage, "PREFIX=/usr", "LIBDIR="+lib)
	c := exec.CommandContext(t.Context(), nfpm(t), "package", "--config", "packaging/nfpm-lib.yaml", "--packager", "deb", "--target", root)
	c.Dir, c.Env = "..", append(os.Environ(), "STAGE="+stage, "VERSION=1.2.3", "ARCH="+runtime.GOARCH)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	to := filepath.Join(root, "to")
	for _, name := range []string{filepath.Join(root, "libwattmark"), filepath.Join(dir, "wattmark")} {
		command(t, "", deb, "-x", name+"_1.2.3_"+runtime.GOARCH+".deb", to)
	}
	if link, err := os.Readlink(filepath.Join(to, lib, "libwattmark.so")); err != nil || link != "libwattmark.so.0" {
		t.Errorf("the linker's name leads to %q: %v", link, err)
	}
	t.Setenv("PKG_CONFIG_PATH", filepath.Join(to, lib, "pkgconfig"))
	t.Setenv("PKG_CONFIG_SYSROOT_DIR", to)
	tool(t, "pkg-config")
	command(t, root, "sh", "-c", cc+" -o program program.c $(pkg-config --cflags --libs wattmark)")
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(to, lib))
	if out := command(t, root, "./program"); out != "the stand-in\n" {
		t.Error(out)
	}
	out, _ := exec.CommandContext(t.Context(), filepath.Join(to, "usr/bin/wattmark"), "doctor", "--machine", "host").CombinedOutput()
	if !strings.Contains(string(out), arch+"/libwattmark.so") {
		t.Errorf("the program does not find the library:\n%s", out)
	}
}

// nextVersion packs 1.2.4, whose configuration of host and bench is another.
func nextVersion(t *testing.T, dir string) (file string) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	if err := os.CopyFS(tree, os.DirFS(filepath.Join(dir, "unpacked", archive))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"host", "bench"} {
		write(t, filepath.Join(tree, "packaging/config", name+".yaml"), "# of 1.2.4\n")
	}
	write(t, filepath.Join(tree, "bin/wattmark"), "stands for the program\n")
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		put(t, "deb/"+name, filepath.Join(tree, "packaging/deb", name), 0o755)
	}
	put(t, "nfpm.yaml", filepath.Join(tree, "nfpm.yaml"), 0o644)
	c := exec.CommandContext(t.Context(), nfpm(t), "package", "--config", "nfpm.yaml", "--packager", "deb", "--target", tree)
	c.Dir, c.Env = tree, append(os.Environ(), "STAGE=.", "VERSION=1.2.4", "ARCH="+runtime.GOARCH)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(tree, fmt.Sprintf("wattmark_1.2.4_%s.deb", runtime.GOARCH))
}

// write makes a file, with its folders.
func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holds tests a file's text.
func holds(t *testing.T, path, text string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s: %v\n%s", path, err, got)
	}
}
