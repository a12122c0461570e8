package trial

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traced are the system calls that change files, and those that make them durable; those
// with a question mark are not on every processor.
const traced = "?open,openat,?creat,write,pwrite64,writev,pwritev,ftruncate,truncate,?rename,renameat,renameat2,?unlink,unlinkat," +
	"?mkdir,mkdirat,?rmdir,fsync,fdatasync,fallocate,?link,linkat,?symlink,symlinkat"

// call is a system call as strace writes it. A call takes effect when it returns; a sync
// covers what was written before it began.
type call struct {
	at           float64
	program      string
	name, path   string // path is that of the file descriptor, or the first argument
	text         []string
	args, result string
	begins       bool   // the begin of a sync
	sync         *saved // of both of a sync's calls
}

// saved is the state that a sync makes durable.
type saved struct {
	data  []byte
	names map[string]*node
}

// node is a file or directory: as it is, and as its last sync left it.
type node struct {
	now   []byte
	names map[string]*node // nil for a file
	saved
}

// readTrace reads strace's output of a program's threads, in the order of effect.
func readTrace(t *testing.T, files []string, base string) (calls []call) {
	t.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Buffer(nil, 1<<28); lines.Scan(); {
			c, end, ok := parse(lines.Text())
			c.program, _, _ = strings.Cut(filepath.Base(name), ".")
			output := strings.HasPrefix(c.args, "1<") || strings.HasPrefix(c.args, "2<")
			if !ok || !strings.HasPrefix(c.path, base) && !(output && c.name == "write") {
				continue
			}
			if c.name == "fsync" || c.name == "fdatasync" {
				c.sync, c.begins = &saved{}, true
				calls = append(calls, c)
				c.begins = false
			}
			c.at = end
			calls = append(calls, c)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// parse reads a line of strace -y -ttt -T -xx; ok is false for calls that failed.
func parse(line string) (c call, end float64, ok bool) {
	at, rest, _ := strings.Cut(line, " ")
	name, rest, _ := strings.Cut(rest, "(")
	i := strings.LastIndex(rest, " = ")
	if i < 0 || strings.HasPrefix(rest[i+3:], "-") || strings.HasPrefix(rest[i+3:], "?") {
		return c, 0, false
	}
	c.name, c.args, c.result = name, rest[:i], rest[i+3:]
	c.at, _ = strconv.ParseFloat(at, 64)
	took, _ := strconv.ParseFloat(strings.TrimSuffix(c.result[strings.LastIndex(c.result, "<")+1:], ">"), 64)
	quoted := strings.Split(c.args, `"`)
	for q := 1; q < len(quoted); q += 2 {
		c.text = append(c.text, unhex(quoted[q]))
	}
	if c.path = ""; len(c.text) > 0 && !strings.Contains(name, "write") {
		c.path = c.text[0]
	} else if _, after, has := strings.Cut(quoted[0], "<"); has {
		hexed, _, _ := strings.Cut(after, ">")
		c.path = unhex(hexed)
	}
	return c, c.at + took, true
}

func unhex(s string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil {
		return s
	}
	return string(b)
}

// number is the last argument of a call.
func (c *call) number() int64 {
	s := strings.TrimSuffix(c.args, ")")
	n, _ := strconv.ParseInt(strings.TrimSpace(s[strings.LastIndex(s, ",")+1:]), 10, 64)
	return n
}

// tree is the file system below a directory, as the calls so far left it.
type tree struct {
	base string
	root *node
	at   map[string]int64 // where write writes next, by program and file descriptor
}

func newTree(base string, directories ...string) *tree {
	d := &tree{base: base, root: directory(), at: map[string]int64{}}
	for _, name := range directories {
		d.root.names[name] = directory()
	}
	d.root.saved.names = d.root.names // they are there before anything runs
	return d
}

func directory() *node {
	return &node{names: map[string]*node{}, saved: saved{names: map[string]*node{}}}
}

// find returns a path's directory and what bears its name there; nil where nothing does.
func (d *tree) find(path string) (dir *node, name string, n *node) {
	below, err := filepath.Rel(d.base, path)
	if err != nil {
		return nil, "", nil
	}
	n = d.root
	for part := range strings.SplitSeq(below, "/") {
		if n == nil || part == "." {
			break
		}
		dir, name = n, part
		n = n.names[part]
	}
	return dir, name, n
}

// do makes the effect of a call. A call that it does not know fails the test.
func (d *tree) do(t *testing.T, c *call) {
	dir, name, n := d.find(c.path)
	fd := c.program + c.args[:max(0, strings.Index(c.args, "<"))]
	switch {
	case strings.HasPrefix(c.name, "open"):
		d.open(c, dir, name, n)
	case strings.HasPrefix(c.name, "mkdir"):
		dir.names[name] = directory()
	case strings.HasPrefix(c.name, "unlink") || c.name == "rmdir":
		delete(dir.names, name)
	case strings.HasPrefix(c.name, "rename"):
		to, as, _ := d.find(c.text[1])
		delete(dir.names, name)
		to.names[as] = n
	case n == nil && strings.Contains(c.args, "(deleted)"):
	case n == nil:
		t.Fatalf("%s of %s, which is not there: this test missed how it came", c.name, c.path)
	case c.sync != nil && c.begins:
		*c.sync = saved{bytes.Clone(n.now), maps.Clone(n.names)}
	case c.sync != nil:
		n.saved = *c.sync
	case c.name == "pwrite64":
		n.write(c.number(), c.text[0])
	case c.name == "write":
		at := d.at[fd]
		if at < 0 { // O_APPEND
			at = int64(len(n.now))
		} else {
			d.at[fd] += int64(len(c.text[0]))
		}
		n.write(at, c.text[0])
	case c.name == "ftruncate":
		n.now = append(n.now, make([]byte, max(0, c.number()-int64(len(n.now))))...)[:c.number()]
	default:
		t.Fatalf("%s of %s: this test does not know what it does", c.name, c.path)
	}
}

func (d *tree) open(c *call, dir *node, name string, n *node) {
	if n == nil && strings.Contains(c.args, "O_CREAT") {
		n = &node{now: []byte{}}
		dir.names[name] = n
	}
	if n != nil && strings.Contains(c.args, "O_TRUNC") {
		n.now = nil
	}
	fd := c.program + c.result[:strings.Index(c.result, "<")]
	if d.at[fd] = 0; strings.Contains(c.args, "O_APPEND") {
		d.at[fd] = -1
	}
}

func (n *node) write(at int64, data string) {
	n.now = append(n.now, make([]byte, max(0, at+int64(len(data))-int64(len(n.now))))...)
	copy(n.now[at:], data)
}

// cutKind of what a power cut leaves: of the files' bytes, and of the directories' names.
type cutKind struct {
	bytes, names left
}

type left uint8

const (
	synced left = iota
	written
	tornBytes // of what was not synced, any sectors; of names, those of any directories
)

// image puts what a cut leaves below a directory into files, by path.
func (n *node) image(files map[string][]byte, path string, k cutKind, rng *rand.Rand) {
	if n.names == nil {
		if base := filepath.Base(path); !strings.HasSuffix(base, "-shm") && base != ".lock" {
			files[path] = n.cut(k.bytes, rng)
		}
		return
	}
	files[path+"/"] = nil
	names := n.names
	if k.names == synced || k.names == tornBytes && rng.IntN(2) == 0 {
		names = n.saved.names
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		names[name].image(files, filepath.Join(path, name), k, rng)
	}
}

func (n *node) cut(l left, rng *rand.Rand) []byte {
	switch {
	case l == written || bytes.Equal(n.now, n.data):
		return bytes.Clone(n.now)
	case l == synced:
		return n.data
	}
	out := make([]byte, []int{len(n.data), len(n.now)}[rng.IntN(2)])
	for at := 0; at < len(out); at += SectorSize {
		from := n.data
		if rng.IntN(2) == 0 {
			from = n.now
		}
		if at < len(from) {
			copy(out[at:min(at+SectorSize, len(out))], from[at:])
		}
	}
	return out
}
