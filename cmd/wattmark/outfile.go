package main

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
)

// otherEnds are endings of file names that mean a format, beside those of export.
var otherEnds = strings.Fields(`.png .jpg .jpeg .gif .webp .bmp .tif .tiff .svg .svgz .pdf .ps .eps .html .htm .md .tex
	.tsv .jsonl .ndjson .xml .yaml .yml .toml .h5 .hdf5 .hdf .nc .mat .npy .npz .pkl .xls .xlsx .ods .pb .orc .avro .duckdb .sql
	.gz .zst .bz2 .xz .lz4 .br .zip .7z .tar .tgz`)

// ending is the ending of a file's name.
func ending(path string) string {
	return strings.ToLower(filepath.Ext(strings.TrimRight(path, "/")))
}

// checkEnding refuses a name whose ending means another format than what is written.
func checkEnding(path, what string, ends ...string) error {
	end := ending(path)
	known := slices.Contains(otherEnds, end) || slices.ContainsFunc(exportFormats, func(f formatInfo) bool { return slices.Contains(f.ends, end) })
	if !known || slices.Contains(ends, end) {
		return nil
	}
	return withCode(exitUsage, fmt.Errorf("%s: what is written is %s: let the name end in %s", path, what, strings.Join(ends, " or ")))
}

// outFile is the value of a flag that names a file to write. A name that means another
// format is refused as the flag is read, before anything is measured.
type outFile struct {
	path *string
	what string
	ends []string
}

func (o outFile) String() string {
	if o.path == nil {
		return ""
	}
	return *o.path
}

func (o outFile) Type() string { return "string" }

func (o outFile) Set(path string) error {
	if err := checkEnding(path, o.what, o.ends...); err != nil {
		return err
	}
	*o.path = path
	return nil
}

// outFlag adds a flag that names a file to write.
func outFlag(fl *pflag.FlagSet, path *string, name, usage, what string, ends ...string) {
	fl.Var(outFile{path, what, ends}, name, usage)
}

func svgFlag(fl *pflag.FlagSet, path *string, usage string) {
	outFlag(fl, path, "svg", usage, "SVG", ".svg")
}

// compressed has what write makes compressed where the file's name ends so.
func compressed(path string, write func(io.Writer) error) func(io.Writer) error {
	var open func(io.Writer) (io.WriteCloser, error)
	switch ending(path) {
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

// decompressed reads what is compressed with gzip or zstd, told by its first bytes, and
// other things as they are.
func decompressed(in io.Reader) (plain io.ReadCloser, packed bool, err error) {
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

// writeFile writes a new file as a whole or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	return writeWhole(path, func(part string) error {
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

// writeWhole lets write make a new file or folder beside its place, and puts it there
// once it is whole.
func writeWhole(path string, write func(part string) error) error {
	taken := fmt.Errorf("%s exists: remove it first or name another file", path)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	path = filepath.Clean(path)
	part := path + ".wattmark-part" // a name that nobody else gives: it may be left of one that was killed
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := write(part)
	if _, serr := os.Lstat(path); err == nil && serr == nil { // made meanwhile
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
