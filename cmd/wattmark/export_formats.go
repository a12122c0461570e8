package main

import (
	"fmt"
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
	text bool // compressed where the name ends in .gz or .zst
}

var exportFormats = []formatInfo{
	{name: "csv", ends: []string{".csv"}, text: true, raw: true, rails: true, span: true},
	{name: "parquet", ends: []string{".parquet"}, raw: true, rails: true, span: true},
	{name: "arrow", ends: []string{".arrow", ".feather", ".ipc"}, raw: true, rails: true, span: true},
	{name: "arrow-stream", ends: []string{".arrows"}, raw: true, rails: true, span: true},
	{name: "sqlite", ends: []string{".db", ".sqlite", ".sqlite3"}, span: true, many: true, file: true},
	{name: "perfetto", ends: []string{".pftrace", ".perfetto-trace"}, text: true, rails: true, span: true, many: true},
	{name: "chrome", ends: []string{".json"}, text: true, rails: true, span: true, many: true},
	{name: "kernels", text: true},
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

// formatByName finds the format that the file's name means, where none is given, and
// refuses a name that means another.
func (f *exportFlags) formatByName() error {
	if f.output == "" || f.output == "-" {
		f.format = firstOf(f.format, "csv")
		return nil
	}
	end, pack := ending(f.output), ""
	if end == ".gz" || end == ".zst" {
		pack, end = end, ending(strings.TrimSuffix(strings.ToLower(f.output), end))
	}
	byName := slices.IndexFunc(exportFormats, func(x formatInfo) bool { return slices.Contains(x.ends, end) })
	if f.format == "" {
		switch {
		case byName >= 0:
			f.format = exportFormats[byName].name
		case end == "" && pack == "":
			f.format = "csv"
		default:
			return withCode(exitUsage, fmt.Errorf("%s: no format has the ending %s: end the name in %s, or name the format with --format", f.output, end+pack, endNames()))
		}
	}
	i := slices.IndexFunc(exportFormats, func(x formatInfo) bool { return x.name == f.format })
	switch {
	case i < 0: // refused later
		return nil
	case pack != "" && !exportFormats[i].text:
		return withCode(exitUsage, fmt.Errorf("%s: %s is written as it is: leave %s out (csv, chrome, kernels and perfetto can be compressed)", f.output, f.format, pack))
	}
	ends := exportFormats[i].ends
	if f.format == "kernels" {
		ends = exportFormats[0].ends // its lines are CSV
	}
	return checkEnding(strings.TrimSuffix(strings.ToLower(f.output), pack), f.format, ends...)
}

// endNames lists the endings that mean a format.
func endNames() string {
	var ends []string
	for _, f := range exportFormats {
		ends = append(ends, f.ends...)
		if f.text && len(f.ends) > 0 {
			ends = append(ends, f.ends[0]+".gz", f.ends[0]+".zst")
		}
	}
	return strings.Join(ends, ", ")
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
