// Package foreign puts into a folder what is none of ours, and tells whether it was
// touched.
package foreign

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Planted is what a folder was given, by path below it.
type Planted struct {
	dir   string
	names []string // of the folder itself
	was   map[string]string
}

// They have the form of captures' names.
const oldCapture, otherCapture, linkedCapture = "20250102-030405-0a1b2c3d", "20250102-030405-0a1b2c3e", "20250102-030405-0a1b2c3f"

// Plant fills a folder with another program's files and folders, of any name and kind.
func Plant(dir string) (*Planted, error) {
	p := &Planted{dir: dir, was: map[string]string{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	files := []string{
		"thesis/chapters/one.tex", ".ssh/id", "data/r.csv", "plain.txt", "lost+found/#12", "log", "empty.removing/header.json.bak", ".cache/x/y",
		oldCapture + "/notes.txt", oldCapture + "-1/header.json.new", otherCapture + "/header.json.new", otherCapture + "/mine.txt", oldCapture + ".removing/diary.txt",
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

// Own tells whether a name of the folder is one that was planted.
func (p *Planted) Own(name string) bool {
	return slices.Contains(p.names, name)
}

// Changed lists what is no longer as it was planted, once the folder lies at dir.
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

// look notes kind, mode and content of a name and all below it.
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
			b, rerr := os.ReadFile(path)
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
