package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/internal/lists"
)

// otherEnds are endings of file names that stand for a format, besides those of export.
var otherEnds = strings.Fields(`.png .jpg .jpeg .gif .webp .bmp .tif .tiff .svg .svgz .pdf .ps .eps .html .htm .md .tex
	.tsv .jsonl .ndjson .xml .yaml .yml .toml .h5 .hdf5 .hdf .nc .mat .npy .npz .pkl
	.xls .xlsx .ods .pb .orc .avro .duckdb .sql
	.gz .zst .bz2 .xz .lz4 .br .zip .7z .tar .tgz`)

// Ending returns the ending of a file's name in lower case, with its dot.
func Ending(path string) string {
	return strings.ToLower(filepath.Ext(strings.TrimRight(path, "/")))
}

// CheckEnding returns a usage error if the ending of path stands for another format than
// format, whose endings are ends. Endings that stand for none are allowed.
func CheckEnding(path, format string, ends ...string) error {
	end := Ending(path)
	known := slices.Contains(otherEnds, end) ||
		slices.ContainsFunc(ExportFormats, func(f FormatInfo) bool { return slices.Contains(f.Ends, end) })
	if !known || slices.Contains(ends, end) {
		return nil
	}
	return Usagef("%s: what is written is %s: let the name end in %s", path, format, strings.Join(ends, " or "))
}

// Checked is a flag's value with a check of what it is set to.
type Checked struct {
	pflag.Value
	Check func(text string) error
}

func (c Checked) Set(text string) error {
	if err := c.Check(text); err != nil {
		return err
	}
	return c.Value.Set(text)
}

// OutFlag adds a flag for a file to write in a format with the endings ends. A name with the ending of another format
// is refused when the flag is parsed, before the measurement.
func OutFlag(fl *pflag.FlagSet, path *string, name, usage, format string, ends ...string) {
	fl.StringVar(path, name, "", usage)
	f := fl.Lookup(name)
	f.Value = Checked{f.Value, func(text string) error { return CheckEnding(text, format, ends...) }}
}

// SVGFlag adds --svg, the file of a picture.
func SVGFlag(fl *pflag.FlagSet, path *string, usage string) {
	OutFlag(fl, path, "svg", usage, "SVG", ".svg")
}

// Compressed returns write with its output compressed if path ends in .gz (gzip) or .zst
// (zstd), else write itself.
func Compressed(path string, write func(io.Writer) error) func(io.Writer) error {
	var open func(io.Writer) (io.WriteCloser, error)
	switch Ending(path) {
	case ".gz":
		open = func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
	case ".zst":
		open = func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }
	default:
		return write
	}
	return func(w io.Writer) error {
		c, err := open(w)
		if err != nil {
			return err
		}
		return errors.Join(write(c), c.Close())
	}
}

// Decompressed returns the content of a gzip or zstd stream, recognised by its first bytes,
// with packed true; other input is passed through. Closing plain does not close in.
func Decompressed(in io.Reader) (plain io.ReadCloser, packed bool, err error) {
	r := bufio.NewReader(in)
	head, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		plain, err = gzip.NewReader(r)
		return plain, true, err
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(r)
		if err != nil {
			return nil, true, err
		}
		return d.IOReadCloser(), true, nil
	}
	return io.NopCloser(r), false, nil
}

// WriteFile writes a new file as a whole or not at all, synced to the disk. A file that exists
// is an error.
func WriteFile(path string, write func(io.Writer) error) error {
	return WriteWhole(path, func(part string) error {
		f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		if err = write(f); err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
}

// ReadFile opens the file at path and returns what read makes of its bytes and its name.
func ReadFile[T any](path string, read func(r io.Reader, name string) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		return *new(T), err
	}
	defer f.Close()
	return read(f, path)
}

// WriteWhole calls write to create a file or folder under a temporary name next to path, and
// renames it to path on success. After an error nothing is left. A path that exists is an
// error, also if it appears during the call.
func WriteWhole(path string, write func(part string) error) error {
	taken := fmt.Errorf("%s exists: remove it first or name another file", path)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	path = filepath.Clean(path)
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	// The suffix belongs to this program alone: such a file is left from a process that was killed.
	part := path + ".wattmark-part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := write(part)
	if _, serr := os.Lstat(path); err == nil && serr == nil { // created meanwhile
		err = taken
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return nil
}

// FormatInfo lists the capabilities of an export format.
type FormatInfo struct {
	Name  string
	Ends  []string // endings of file names that stand for it
	Raw   bool     // can hold raw counts
	Rails bool     // can hold single rails
	Span  bool     // can hold a part of the window
	Many  bool     // can hold several tasks
	File  bool     // needs a file: cannot go to standard output
	Text  bool     // compressed if the name ends in .gz or .zst
}

// ExportFormats are the formats of export, in the order of its help.
var ExportFormats = []FormatInfo{
	{Name: "csv", Ends: []string{".csv"}, Text: true, Raw: true, Rails: true, Span: true},
	{Name: "parquet", Ends: []string{".parquet"}, Raw: true, Rails: true, Span: true},
	{Name: "arrow", Ends: []string{".arrow", ".feather", ".ipc"}, Raw: true, Rails: true, Span: true},
	{Name: "arrow-stream", Ends: []string{".arrows"}, Raw: true, Rails: true, Span: true},
	{Name: "sqlite", Ends: []string{".db", ".sqlite", ".sqlite3"}, Span: true, Many: true, File: true},
	{Name: "perfetto", Ends: []string{".pftrace", ".perfetto-trace"}, Text: true, Rails: true, Span: true, Many: true},
	{Name: "kernels", Text: true},
	{Name: "recording", Ends: []string{".recording"}, File: true},
}

// FormatNames returns the names of the export formats: "csv, parquet, … or recording".
func FormatNames() string {
	names := lists.Map(ExportFormats, func(f FormatInfo) string { return f.Name })
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
