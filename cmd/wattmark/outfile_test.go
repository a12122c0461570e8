package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// A file's name does not say another format than what is in it.
func TestNamesDoNotLie(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	db := filepath.Join(dir, "power.db")
	inside(t, "demo", "--db", db, "--duration", "60ms").ok(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	plain := inside(t, "export", "1", "--db", db).ok(t).out
	for name, open := range map[string]func(io.Reader) (io.Reader, error){
		"a.csv":     func(r io.Reader) (io.Reader, error) { return r, nil },
		"a.csv.gz":  func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"A.CSV.ZST": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		"plain":     func(r io.Reader) (io.Reader, error) { return r, nil },
	} {
		if out := inside(t, "export", "1", "--db", db, "-o", at(name)).ok(t).out; !strings.HasPrefix(out, "Written to "+at(name)+" (csv, ") {
			t.Errorf("%s: %q", name, out)
		}
		r, err := open(bytes.NewReader(readAll(t, at(name))))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != plain {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(b), len(plain), err)
		}
	}
	for _, name := range []string{"a.csv.gz", "A.CSV.ZST"} {
		if out := inside(t, "import", "csv", at(name), "--db", db).ok(t).out; !strings.Contains(out, "imported from "+name) {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"export 1 -o x.h5", ".csv, .csv.gz, .csv.zst, .parquet"},
		{"export 1 -o x.xlsx", "no format has the ending .xlsx"},
		{"export 1 -o x.pb", "--format"},
		{"export 1 -o x.gz", "no format has the ending .gz"},
		{"export 1 -o x.csv.bz2", "no format has the ending .bz2"},
		{"export 1 -o x.parquet.gz", "leave .gz out"},
		{"export 1 -o x.parquet --format csv", "end in .csv"},
		{"export 1 -o x.h5 --format csv", "end in .csv"},
		{"export 1 -o x.json --format kernels", "end in .csv"},
		{"show 1 --svg x.png", "what is written is SVG"},
		{"validate 1 --svg x.pdf", "end in .svg"},
		{"validate 1 --html x.svg", "end in .html"},
		{"pulse --svg x.svg.gz", "end in .svg"},
		{"db backup x.csv", "a database"},
		{"db detach x.db.gz --task 1", "a database"},
	} {
		inside(t, append(strings.Fields(strings.Replace(c.args, " x.", " "+dir+"/x.", 1)), "--db", db)...).fails(t, exitUsage, c.want)
	}
	if left, err := filepath.Glob(at("x*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	inside(t, "export", "1", "--db", db, "-o", at("log.txt"), "--format", "csv").ok(t)
	inside(t, "export", "1", "--db", db, "-o", at("pl.ipc")).ok(t)
	inside(t, "export", "1", "--db", db, "-o", at("a.recording")+"/").ok(t)
}

// What fails leaves neither the file or folder nor a part of it.
func TestNothingHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := errors.New("no space left")
	for _, write := range []func(part string) error{
		func(part string) error { return errors.Join(os.WriteFile(part, []byte("half"), 0o600), full) },
		func(part string) error {
			return errors.Join(os.MkdirAll(filepath.Join(part, "sub"), 0o700), os.WriteFile(filepath.Join(part, "sub", "x"), []byte("half"), 0o600), full)
		},
	} {
		if err := writeWhole(filepath.Join(dir, "out.recording"), write); !errors.Is(err, full) {
			t.Errorf("%v", err)
		}
	}
	err := writeFile(filepath.Join(dir, "a.gz"), compressed("a.gz", func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return errors.Join(err, full)
	}))
	if left, glob := filepath.Glob(filepath.Join(dir, "*")); !errors.Is(err, full) || glob != nil || len(left) > 0 {
		t.Errorf("%v; left: %v", err, left)
	}
}

// A file that only has a name like an unfinished one's stays; one that was left is replaced.
func TestUnfinishedFilesOfOthersStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	for _, part := range []string{".part", ".wattmark-part"} {
		if err := os.WriteFile(path+part, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put := func(w io.Writer) error { _, err := io.WriteString(w, "ours"); return err }
	if err := writeFile(path, put); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path + ".part"); err != nil || string(b) != "theirs" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "ours" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Lstat(path + ".wattmark-part"); err == nil {
		t.Error("a part is left")
	}
	if err := writeFile(path, put); err == nil {
		t.Error("a file was written over")
	}
}

// What a file says to a terminal in an error is shown, not obeyed.
func TestErrorsAreShown(t *testing.T) {
	if got := printable(errors.New("column \x1b[2J\xff\nnext line")); got != "column \uFFFD[2J\uFFFD\nnext line" {
		t.Errorf("%q", got)
	}
}
