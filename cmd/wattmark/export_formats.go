package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// exportFlags are the flags of export.
type exportFlags struct {
	format, output            string
	all, raw, hostTime, every bool
	result                    uint
	rails                     []string
	from, to                  time.Duration
	fromGiven, toGiven        bool
}

// formatInfo is what a format of export can do.
type formatInfo struct {
	name  string
	ends  []string // of file names that mean it
	raw   bool     // counts too
	rails bool     // single rails too
	span  bool     // part of the window too
	many  bool     // several tasks
	// file says that it cannot go to the standard output.
	file bool
}

var exportFormats = []formatInfo{
	{name: "csv", ends: []string{".csv"}, raw: true, rails: true, span: true},
	{name: "parquet", ends: []string{".parquet"}, raw: true, rails: true, span: true},
	{name: "arrow", ends: []string{".arrow", ".feather"}, raw: true, rails: true, span: true},
	{name: "arrow-stream", ends: []string{".arrows"}, raw: true, rails: true, span: true},
	{name: "sqlite", ends: []string{".db", ".sqlite", ".sqlite3"}, span: true, many: true, file: true},
	{name: "perfetto", ends: []string{".pftrace", ".perfetto-trace"}, rails: true, span: true, many: true},
	{name: "chrome", ends: []string{".json"}, rails: true, span: true, many: true},
	{name: "kernels"},
	{name: "recording", ends: []string{".recording"}, file: true},
}

func formatNames() string {
	var names []string
	for _, f := range exportFormats {
		names = append(names, f.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// formatOf is the format that a file's name means.
func formatOf(file string) string {
	end := strings.ToLower(filepath.Ext(strings.TrimRight(file, "/")))
	for _, f := range exportFormats {
		if slices.Contains(f.ends, end) {
			return f.name
		}
	}
	return "csv"
}

// check refuses what a format cannot do.
func (f *exportFlags) check(tasks int) (formatInfo, error) {
	usage := func(format string, a ...any) (formatInfo, error) {
		return formatInfo{}, withCode(exitUsage, fmt.Errorf(format, a...))
	}
	i := slices.IndexFunc(exportFormats, func(x formatInfo) bool { return x.name == f.format })
	if i < 0 {
		return usage("format %q: want %s", f.format, formatNames())
	}
	info := exportFormats[i]
	toStdout := f.output == "" || f.output == "-"
	switch {
	case toStdout && info.name == "recording":
		return usage("a recording is a folder: name it with -o")
	case toStdout && info.file:
		return usage("%s cannot go to standard output: name a file with -o", info.name)
	case tasks > 1 && !info.many:
		return usage("a file of format %s holds one task, not %d: its columns are the task's own rails. Export each to a file of its own, or choose sqlite, perfetto or chrome, which hold several", info.name, tasks)
	case tasks > 1 && f.result != 0:
		return usage("--result is the number of one task's result: export that task alone")
	case f.raw && !info.raw:
		return usage("--raw: %s has no place for counts: choose csv, parquet or arrow", info.name)
	case f.hostTime && !info.raw:
		return usage("--host-time is a column of csv, parquet and arrow; perfetto, chrome and kernels are on the host's clock anyway")
	case len(f.rails) > 0 && !info.rails:
		return usage("--rail: %s has no columns of single rails: choose csv, parquet, arrow, perfetto or chrome", info.name)
	case (f.fromGiven || f.toGiven) && !info.span:
		return usage("--from and --to: %s is written as a whole", info.name)
	case f.fromGiven && f.toGiven && f.to <= f.from:
		return usage("--to must lie after --from")
	}
	return info, nil
}
