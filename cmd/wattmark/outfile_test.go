package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/wattmark/wattmark/cmd/internal/cli"
)

// A file's name does not say another format than what is in it.
func TestNamesDoNotLie(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := t.TempDir()
	db := demoDB(t, demo)
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
		{"show 1 --svg x.png", "what is written is SVG"},
		{"validate 1 --svg x.pdf", "end in .svg"},
		{"validate 1 --html x.svg", "end in .html"},
		{"pulse --svg x.svg.gz", "end in .svg"},
		{"db backup x.csv", "a database"},
		{"db detach x.db.gz --task 1", "a database"},
	} {
		inside(t, append(strings.Fields(strings.Replace(c.args, " x.", " "+dir+"/x.", 1)), "--db", db)...).fails(t, cli.ExitUsage, c.want)
	}
	if left, err := filepath.Glob(at("x*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	inside(t, "export", "1", "--db", db, "-o", at("log.txt"), "--format", "csv").ok(t)
	inside(t, "export", "1", "--db", db, "-o", at("pl.ipc")).ok(t)
	inside(t, "export", "1", "--db", db, "-o", at("a.recording")+"/").ok(t)
}
