package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Planted is a folder with another program's files in it, as they were when they were written.
type Planted struct {
	dir   string
	names []string          // of the folder itself
	was   map[string]string // kind, mode and content by path below the folder
}

// Foreign folders whose names have the form of a capture's.
const (
	oldCapture    = "20250102-030405-0a1b2c3d"
	otherCapture  = "20250102-030405-0a1b2c3e"
	linkedCapture = "20250102-030405-0a1b2c3f"
)

// Plant creates a folder, and in it another program's files, folders, links and pipes, some with names like those of
// the product's own.
func Plant(dir string) (*Planted, error) {
	p := &Planted{dir: dir, was: map[string]string{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	files := []string{
		"thesis/chapters/one.tex", ".ssh/id", "data/r.csv", "plain.txt", "lost+found/#12", "log", ".cache/x/y",
		"empty.removing/header.json.bak", oldCapture + "/notes.txt", oldCapture + "-1/header.json.new",
		otherCapture + "/header.json.new", otherCapture + "/mine.txt", oldCapture + ".removing/diary.txt",
		"wattmark-store-mine/task.db", "other.db", "other.db-wal", "power.db.bak",
	}
	for _, f := range files {
		path := filepath.Join(dir, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(f), 0o600)); err != nil {
			return nil, err
		}
	}
	away := filepath.Join(dir, "thesis", "chapters")
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "nothing"), 0o700), os.Mkdir(filepath.Join(dir, ".git"), 0o700),
		os.Symlink(away, filepath.Join(dir, "link")), os.Symlink(away, filepath.Join(dir, linkedCapture)),
		os.Symlink("/nowhere", filepath.Join(dir, "dangling")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	)
	if err != nil {
		return nil, err
	}
	for _, f := range append(files, "nothing", ".git", "link", linkedCapture, "dangling", "pipe") {
		if name, _, _ := strings.Cut(f, "/"); !p.Own(name) {
			p.names = append(p.names, name)
			err = errors.Join(err, p.look(name, p.was))
		}
	}
	return p, err
}

// Own reports whether an entry of the folder was planted.
func (p *Planted) Own(name string) bool { return slices.Contains(p.names, name) }

// Changed describes each planted path that is gone or different, and each that was added below one.
func (p *Planted) Changed() (out []string) {
	now := map[string]string{}
	for _, n := range p.names {
		if err := p.look(n, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			out = append(out, err.Error())
		}
	}
	for path, was := range p.was {
		if is, there := now[path]; !there {
			out = append(out, fmt.Sprintf("%s is gone", filepath.Join(p.dir, path)))
		} else if is != was {
			out = append(out, fmt.Sprintf("%s was %q and is %q", filepath.Join(p.dir, path), was, is))
		}
	}
	for path := range now {
		if _, there := p.was[path]; !there {
			out = append(out, fmt.Sprintf("%s has come", filepath.Join(p.dir, path)))
		}
	}
	return out
}

// look records kind, mode and content of an entry and of all below it.
func (p *Planted) look(name string, into map[string]string) error {
	return filepath.WalkDir(filepath.Join(p.dir, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, rerr := os.ReadFile(path) // #nosec G122 -- a folder of the trial, which nothing else changes
			text, err = text+" "+string(b), rerr
		case info.Mode()&fs.ModeSymlink != 0:
			to, rerr := os.Readlink(path)
			text, err = text+" "+to, rerr
		}
		below, rerr := filepath.Rel(p.dir, path)
		into[below] = text
		return errors.Join(err, rerr)
	})
}

// CrowdSize is more connections than any service accepts from one peer.
const CrowdSize = 48

// phases are the bytes that a connection sends before it falls silent: none, parts of HTTP/2, HTTP and TLS requests.
var phases = []string{
	"", "PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"GET /healthz HTTP/1.1\r\nHost: ", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}

// Crowd is the idle connections that are open.
type Crowd []net.Conn

// Gather opens CrowdSize connections by the dialers in turn. Each falls silent in the phase, of n, that the caller
// chooses. It fails only where every connection is refused.
func Gather(
	ctx context.Context, phase func(n int) int, dialers ...func(context.Context) (net.Conn, error),
) (c Crowd, err error) {
	for i := range CrowdSize {
		one, derr := dialers[i%len(dialers)](ctx)
		if derr != nil {
			err = errors.Join(err, derr)
			continue
		}
		_, _ = one.Write([]byte(phases[phase(len(phases))]))
		c = append(c, one)
	}
	if len(c) > 0 {
		err = nil
	}
	return c, err
}

// Leave closes all connections.
func (c Crowd) Leave() {
	for _, one := range c {
		_ = one.Close()
	}
}
