package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// pageBlock is a block of command lines of a page. HTML comments before it change how it is run:
//
//	<!-- first: COMMANDS -->      of the shell, before the block
//	<!-- ends after SECONDS -->   each of its commands, which have no end of their own
//	<!-- answers: TEXT -->        to all that its commands ask
//	<!-- exits with CODE -->      each of its commands
type pageBlock struct {
	lines                     []string
	first, end, answers, code string
}

var (
	isCommand = regexp.MustCompile(`^(?:\$ )?(wattmark|sqlite3|curl|make|go|sudo|sudoedit|ssh|pip|python3|export|createdb|psql|cc|cd|WATTMARK_\w+=\S*) `)
	notes     = regexp.MustCompile(`(?s)^<!-- (first: |ends after |answers: |exits with )(.+) -->$`)
	serves    = regexp.MustCompile(`^wattmark (emulate [a-z]+[0-9]* --|monitor|host|store|relay --db [^ ]+$|cluster trial)`)
	measures  = regexp.MustCompile(`wattmark (run|host|instruments|top|pulse|calibrate|tiny|ptd)`)
	emulates  = regexp.MustCompile(`wattmark emulate [a-z]+[0-9]* --`)
	manyTimes = regexp.MustCompile(`--times \d\d? `)                              // repeated less here
	reads     = regexp.MustCompile(`wattmark (monitor|instruments|run .*--port)`) // the meter itself
)

// blocksOf returns the blocks of command lines of a page: indented lines behind an empty one. Of a transcript, with
// "$ " before its commands, the other lines are output.
func blocksOf(page string) (blocks []pageBlock) {
	var b pageBlock
	for part := range strings.SplitSeq(regexp.MustCompile(` \\\n\s*`).ReplaceAllString(page, " "), "\n\n") {
		part = strings.Trim(part, "\n")
		if m := notes.FindStringSubmatch(part); m != nil {
			*map[string]*string{
				"first: ": &b.first, "ends after ": &b.end, "answers: ": &b.answers, "exits with ": &b.code,
			}[m[1]] = m[2]
			continue
		}
		b := take(&b)
		if !strings.HasPrefix(part, "    ") || !isCommand.MatchString(strings.TrimLeft(part, " ")) {
			continue
		}
		open := false // a quote that the line before has begun
		for line := range strings.SplitSeq(part, "\n") {
			line = strings.TrimPrefix(line, "    ")
			if open {
				b.lines[len(b.lines)-1] += "\n" + line
			} else if isCommand.MatchString(line) {
				b.lines = append(b.lines, strings.TrimPrefix(line, "$ "))
			}
			code, _, _ := strings.Cut(line, "   ") // else a remark
			open = open != (strings.Count(code, "'")%2 == 1 && (open || isCommand.MatchString(line)))
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// take returns a block, and empties it.
func take(b *pageBlock) pageBlock {
	out := *b
	*b = pageBlock{}
	return out
}

// pagePrelude is the shell in which the lines of a page run: in namespaces of their own, so that /tmp, the ports and
// the names of other machines are theirs. Services are awaited by what they print.
const pagePrelude = `
ip link set lo up
ip addr add 192.168.1.20/32 dev lo
[ -z "$PG" ] || mount --bind "$PG" "$DIR/pg"
mount --bind "$DIR/hosts" /etc/hosts
[ -z "$RECORDINGS" ] || mount --bind "$RECORDINGS" "$DIR/work/recordings"
mkdir -p "$DIR/tree" "$DIR/gocache" "$DIR/modules" "$GOCACHE" "$GOMODCACHE" # which may lie in /tmp
mount --bind "$TREE" "$DIR/tree"
mount --bind "$GOCACHE" "$DIR/gocache"
mount --bind "$GOMODCACHE" "$DIR/modules"
mount --rbind "$DIR" /tmp
export TREE=/tmp/tree GOCACHE=/tmp/gocache GOMODCACHE=/tmp/modules
cd /tmp/work
services=
serve() { # NAME PATTERN COMMAND
	sh -c "exec $3" >/tmp/$1.log 2>&1 </dev/null &
	services="$services $!"
	i=0
	until grep -q "$2" /tmp/$1.log; do
		sleep 0.05; i=$((i+1))
		if [ $i -gt 1200 ] || ! kill -0 $! 2>/dev/null; then cat /tmp/$1.log; false; return; fi
	done
}
stop() { [ -z "$services" ] || kill $services; for p in $services; do wait $p; done; services=; rm -f /tmp/meter /tmp/gpu /tmp/work/meter; }
`

// pageScript returns the shell script of the blocks that are run, and their lines by number.
func pageScript(blocks []pageBlock) (script string, lines []string) {
	var b strings.Builder
	b.WriteString(pagePrelude)
	emulator, monitor := false, false
	first := func(commands string) {
		if commands != "" {
			fmt.Fprintf(&b, "%s\n[ $? = 0 ] || echo '@@failed: %s'\n", commands, strings.ReplaceAll(commands, "'", `'\''`))
		}
	}
	for _, block := range blocks {
		text := strings.NewReplacer("/dev/ttyACM0", "/tmp/work/meter", "/etc/wattmark", "/tmp/etc", "/data/", "/tmp/data/",
			"/var/", "/tmp/var/").Replace(strings.Join(block.lines, "\x00"))
		text = manyTimes.ReplaceAllString(text, "--times 3 ")
		if text == "" {
			first(block.first)
			continue
		}
		switch {
		case emulates.MatchString(text):
			b.WriteString("stop\n")
			emulator, monitor = true, strings.Contains(text, "wattmark monitor")
		case measures.MatchString(text):
			if !emulator {
				b.WriteString("serve emulate 'powersensor3 on' 'wattmark emulate powersensor3 --link meter --gpu sim:/tmp/gpu'\n")
			}
			emulator = true
			if !monitor && !reads.MatchString(text) {
				b.WriteString("serve monitor 'serving the bench' 'wattmark monitor --bench bench.yaml'\n")
			}
			monitor = monitor || !reads.MatchString(text) || strings.Contains(text, "wattmark monitor")
		}
		first(block.first)
		in := "</dev/null"
		if block.answers != "" {
			in = fmt.Sprintf("<<END\n%s\nEND", strings.Repeat(block.answers+"\n", 20))
		}
		for line := range strings.SplitSeq(text, "\x00") {
			fmt.Fprintf(&b, "printf '@@begin %d\\n'\n", len(lines))
			command := regexp.MustCompile(`  +#[^'\n]*($|\n)`).ReplaceAllString(line, "$1")
			if block.end != "" {
				fmt.Fprintf(&b, "{ timeout -s INT %s %s || [ $? = 124 ]\n} </dev/null\n", block.end, command)
			} else if m := serves.FindString(command); m != "" {
				command = strings.TrimSuffix(strings.TrimSpace(command), "&")
				fmt.Fprintf(&b, "serve s%d ' on /\\|serving\\|streams are there\\|taking' '%s'\n", len(lines), command)
			} else {
				fmt.Fprintf(&b, "{ %s\n} %s\n", command, in)
				if block.answers == "" && strings.HasPrefix(command, "wattmark run ") {
					// A GPU's own sensor, read by a busy machine, may lose a marker: the task is incomplete then.
					fmt.Fprintf(&b, "r=$?\nfor again in 1 2; do [ $r = 3 ] || break; { %s\n} </dev/null\nr=$?; done\n(exit $r)\n", command)
				}
			}
			fmt.Fprintf(&b, "printf '\\n@@end %%d\\n' $(($? - %s))\n", cmp.Or(block.code, "0"))
			lines = append(lines, line)
		}
	}
	return b.String() + "stop\n", lines
}

// pageFolder makes what the commands of pages refer to: the program, a database, a bench file, programs to measure.
func pageFolder(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"bin", "work", "home", "run", "work/recordings", "etc", "data", "var", "pg"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, "work", name) }
	if err := os.CopyFS(in("h200"), os.DirFS("../../testdata/h200/pulse")); err != nil {
		t.Fatal(err)
	}
	goldenDatabase(t, in("power.db"))
	goldenDatabase(t, in("node-a.db"))
	goldenDatabase(t, in("host.db"))
	program := "#!/bin/sh\nsleep 0.3\n"
	files := map[string]string{
		in("gemm"): program, in("gemm-v1"): program, in("gemm-v2"): program, in("v1"): program, in("v2"): program,
		in("server.py"): `import sys; sys.path.insert(0, '/tmp/tree/api/python/src')
import time, wattmark
w = wattmark.window("r17", "decode", "chat")
time.sleep(0.3)
w.end(tokens=128)
`,
		in("train.py"):                       "import sys; sys.path.insert(0, '/tmp/tree/api/python/src')\nimport wattmark; wattmark.benchmark('compute', 0.3)\n",
		filepath.Join(dir, "bin", "forward"): forward, in("program.c"): "#include <wattmark.h>\nint main(void) { return !wm_error(); }\n", filepath.Join(dir, "bin", "python"): "#!/bin/sh\nexec python3 \"$@\"\n",
		filepath.Join(dir, "bin", "ssh"): "#!/bin/sh\n", // the other machine is this one
		in("bench.yaml"):                 "instruments:\n  - kind: powersensor3\n    address: serial:meter\n",
		filepath.Join(dir, "hosts"):      "127.0.0.1 localhost gpu-host lab-monitor lab lab-a meter meters node1 db.lab\n127.0.0.2 lab-b node2\n",
	}
	for to, from := range map[string]string{
		"kernels.csv": goldenDir + "/in/kernels.csv", "scope.csv": goldenDir + "/in/scope.csv",
		"h200.jsonl": "../../testdata/h200/instructions/pass1.jsonl", "h200-predict.csv": "../../testdata/h200/predict/vectoradd.csv",
		"nvml-power.csv": "../../testdata/h200/alternate/nvml-power.csv", "kernel-events.csv": "../../testdata/h200/alternate/kernel-events.csv",
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[in(to)] = string(text)
	}
	kernels := strings.Split(strings.TrimSpace(files[in("kernels.csv")]), "\n")
	for i := range kernels {
		kernels[i] += fmt.Sprintf(",app%d", i%5)
	}
	kernels[0] = strings.Replace(kernels[0], ",app0", ",group", 1)
	files[in("kernels.csv")] = strings.Join(kernels, "\n") + "\n"
	files[in("others.csv")] = files[in("kernels.csv")]
	files[in("smi.csv")] = inside(t, "correct", "model").ok(t).out
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(path, filepath.Join(dir, "bin", "wattmark")); err != nil {
		t.Fatal(err)
	}
	if lib, err := library(); err == nil { // else there is no C compiler
		for _, name := range []string{"libwattmark.so", "libwattmark.so.0"} {
			if err := os.Link(lib, filepath.Join(dir, "bin", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// forward serves a port of the page's machine by a socket, and prints when it does.
const forward = `#!/usr/bin/env python3
import socket, sys, threading
def copy(a, b):
    while data := a.recv(65536): b.sendall(data)
    b.shutdown(socket.SHUT_WR)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("serving", flush=True)
while True:
    a, b = server.accept()[0], socket.socket(socket.AF_UNIX)
    b.connect(sys.argv[2])
    for pair in (a, b), (b, a): threading.Thread(target=copy, args=pair, daemon=True).start()
`

// inTerminal runs a command with its output on a terminal of 80 columns, and returns that.
func inTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	master, path, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(master) // ends with an error when the last end is closed
		text <- string(b)
	}()
	got := <-text
	_ = cmd.Wait() // each line has its own exit code
	return got
}

var printed = regexp.MustCompile(`(?s)@@begin (\d+)\r?\n(.*?)\n@@end (\d+)`)

// Every command line of the pages runs as it is written, on an emulated bench, and prints nothing wider than 80
// columns, but for those of unrun.
func TestCommandsOfPagesRun(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	if testing.Short() {
		t.Skip("starts a bench for each page")
	}
	for _, need := range []string{"sqlite3", "curl", "ip"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip(err)
		}
	}
	if err := exec.Command("unshare", "-U", "-r", "-n", "-m", "true").Run(); err != nil {
		t.Skip("no namespaces: ", err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	recordings, err := filepath.Abs("../../../shared/data/pmd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(recordings); err != nil {
		recordings = "" // a machine without them
	}
	run, left := 0, 0
	used := map[string]bool{}
	// Not as parallel tests, which would begin behind all others: these take the longest.
	var pages errgroup.Group
	pages.SetLimit(2)
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page := filepath.Base(name)
		blocks := blocksOf(string(text))
		for i := range blocks {
			blocks[i].lines = slices.DeleteFunc(blocks[i].lines, func(line string) bool {
				n := slices.IndexFunc(unrun, func(u unrunLine) bool { return u.page == page && strings.HasPrefix(line, u.line) })
				if n < 0 || unrun[n].reason == needsRecordings && recordings != "" {
					return false
				}
				used[page+unrun[n].line], left = true, left+1
				return true
			})
		}
		script, lines := pageScript(blocks)
		if run += len(lines); len(lines) > 0 {
			pages.Go(func() error {
				t.Run(page, func(t *testing.T) { runPage(t, path, recordings, script, lines) })
				return nil
			})
		}
	}
	_ = pages.Wait() // none returns an error
	for _, u := range unrun {
		if !used[u.page+u.line] && u.reason != needsRecordings {
			t.Errorf("%s has no line %q", u.page, u.line)
		}
	}
	t.Logf("%d lines are run, %d are parsed alone", run, left)
}

// databaseOf starts a PostgreSQL server for a page that wants one, and returns the folder of its socket.
func databaseOf(t *testing.T, script string) string {
	t.Helper()
	if !strings.Contains(script, "/tmp/pg/") {
		return ""
	}
	address, err := url.Parse(pgtest.Own(t, "fsync=off").URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	dir := address.Query().Get("host")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runPage runs the script of a page and judges each of its lines.
func runPage(t *testing.T, path, recordings, script string, lines []string) {
	dir := pageFolder(t, path)
	cmd := exec.Command("unshare", "-U", "-r", "-n", "-m", "sh", "-c", script)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "XDG_") })
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	tree, err2 := filepath.Abs("../..")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	cache, modules, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	cmd.Env = append(cmd.Env, "TREE="+tree, "GOCACHE="+cache, "GOMODCACHE="+modules, "DIR="+dir, "RECORDINGS="+recordings, "PG="+databaseOf(t, script), "HOME=/tmp/home", "WATTMARK_CONFIG=/tmp/home/config.yaml", "TMPDIR=/tmp/run",
		"PATH=/tmp/bin:"+os.Getenv("PATH"), "LD_LIBRARY_PATH=/tmp/bin", "WATTMARK_GPU=sim:/tmp/gpu", "LC_ALL=C.UTF-8", "TERM=xterm-256color", "USER=ada",
		"LOGNAME=ada")
	all := inTerminal(t, cmd)
	for _, m := range regexp.MustCompile(`@@failed: .*`).FindAllString(all, -1) {
		t.Error(m)
	}
	found := printed.FindAllStringSubmatch(all, -1)
	if len(found) != len(lines) {
		t.Errorf("%d of %d lines ran", len(found), len(lines))
	}
	for i, m := range found {
		text := ansi.Strip(strings.ReplaceAll(m[2], "\r\n", "\n"))
		if m[3] != "0" {
			t.Errorf("%s\nexit code %s\n%s", lines[i], m[3], text)
		}
		if strings.HasPrefix(lines[i], "curl") || strings.HasPrefix(lines[i], "psql") || strings.Contains(lines[i], "--json") || strings.Contains(lines[i], "--format") {
			continue // for programs, not for people
		}
		if strings.HasPrefix(lines[i], "wattmark top") {
			continue // draws a screen
		}
		for l := range strings.SplitSeq(text, "\n") {
			if l = l[strings.LastIndexByte(l, '\r')+1:]; strings.HasPrefix(l, "time=") {
				continue // a service's log
			}
			if w := ansi.StringWidth(strings.TrimRight(l, " ")); w > 80 {
				t.Errorf("%s\n%d columns: %s", lines[i], w, l)
			}
		}
	}
	if t.Failed() {
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		for _, name := range logs {
			text, rerr := os.ReadFile(name)
			t.Logf("%s %v\n%.2000s", filepath.Base(name), errors.Join(err, rerr), text)
		}
	}
}
