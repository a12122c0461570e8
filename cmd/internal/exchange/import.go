package exchange

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// SmiFlags are the flags of import nvidia-smi. Offset is the log's local time minus UTC;
// Given reports that it was set.
type SmiFlags struct {
	task   int64
	Offset time.Duration
	Zone   string
	Given  bool // --utc-offset
}

func importSmiCmd(a *cli.App) *cobra.Command {
	var f SmiFlags
	var fl *pflag.FlagSet
	c := cli.Command("nvidia-smi FILE --task N", "Take in a log of nvidia-smi as a software method of a task",
		cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			f.Given = fl.Changed("utc-offset")
			return importSmi(ctx, a, args[0], f)
		})
	c.Aliases = smilog.Tools()[1:]
	fl = c.Flags()
	fl.Int64Var(&f.task, "task", 0, "number of the task")
	fl.DurationVar(&f.Offset, "utc-offset", 0, "how far the log's local time was ahead of UTC, as in 1h or -5h30m")
	fl.StringVar(&f.Zone, "zone", "", "the log's time zone, as in Europe/Berlin")
	return a.JSONFlag(c)
}

// Check returns a usage error for an offset and a zone together, and for an offset of no place.
func (f *SmiFlags) Check() error {
	switch {
	case f.Given && f.Zone != "":
		return cli.Usagef("give --utc-offset or --zone, not both")
	case f.Offset.Abs() > 14*time.Hour:
		return cli.Usagef("--utc-offset %v: no place on earth is so far from UTC", f.Offset)
	}
	return nil
}

// importSmi stores a log's power columns as software methods of an existing task. A second
// import replaces the first. The log must cover the task's work.
func importSmi(ctx context.Context, a *cli.App, path string, f SmiFlags) error {
	if f.task < 1 {
		return cli.Usagef("name the task with --task: list them with wattmark tasks")
	}
	if err := f.Check(); err != nil {
		return err
	}
	log, err := ReadSmi(path)
	if err != nil {
		return err
	}
	db, err := a.OpenToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := a.Task(ctx, db, fmt.Sprint(f.task))
	if err != nil {
		return err
	}
	from, to, err := WorkSpan(ctx, db, t.ID)
	if err != nil {
		return err
	}
	zone, err := f.Place(log, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	results, err := storeSmi(ctx, db, t.ID, log, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r := report.NewReport(t, a.DB)
	if err := r.AddMethods(ctx, db); err != nil {
		return err
	}
	imported := ImportReport{TaskID: int64(t.ID), Offset: zone, Skipped: log.Skipped}
	imported.Methods = lists.Filter(r.Methods, func(m *report.MethodReport) bool {
		return slices.ContainsFunc(results, func(x store.MethodResult) bool { return x.Method == m.Method })
	})
	return a.Print(imported, func(w io.Writer) {
		fmt.Fprintf(w, "Task %d  %s: the log's time was taken as %s ahead of UTC; %d values were no numbers\n", t.ID,
			t.Name, zone, log.Skipped)
		report.RenderMethods(w, imported.Methods, "the meter")
	})
}

// MaxSmi bounds a log in bytes: more than a day at the highest rate of nvidia-smi.
const MaxSmi = 1 << 30

// ReadSmi reads a log of nvidia-smi, compressed or not, with local times left as they are.
// It fails for logs of MaxSmi bytes or more, and for a line that does not parse.
func ReadSmi(path string) (*smilog.Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, _, err := cli.Decompressed(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer plain.Close()
	in := &io.LimitedReader{R: plain, N: MaxSmi}
	log, err := smilog.Parse(in, 0)
	if in.N == 0 {
		return nil, fmt.Errorf("%s: not less than 1 GiB: cut out what belongs to the task", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nWant what nvidia-smi --query-gpu=timestamp,power.draw --format=csv writes, or a log "+
			"of %s: mend or remove that line", path, err,
			strings.Join(smilog.Tools()[1:], ", "))
	}
	return log, nil
}

// WorkSpan returns the start of a task's first kernel and the end of its last one, by the
// host's clock. It fails where the task has no kernels with a length.
func WorkSpan(ctx context.Context, db *store.DB, id store.TaskID) (from, to time.Time, err error) {
	ks, err := db.Kernels(ctx, id)
	if err != nil {
		return from, to, err
	}
	for i, k := range ks {
		if i == 0 || k.Start.Before(from) {
			from = k.Start
		}
		if k.End.After(to) {
			to = k.End
		}
	}
	if !from.Before(to) {
		return from, to, fmt.Errorf("task %d: it is not known when its work ran", id)
	}
	return from, to, nil
}

// Place shifts a log's times in place to UTC and returns a text with the offset and its
// source: the log, the flags, or a guess. from and to bound the task's work, which the log
// must cover.
func (f *SmiFlags) Place(log *smilog.Log, from, to time.Time) (string, error) {
	if log.Absolute {
		if f.Given || f.Zone != "" {
			return "", cli.Usagef("its times count from 1970 or name their zone: leave --utc-offset and --zone out")
		}
		return "0s (its times say so)", covering(log, from, to)
	}
	if f.Given {
		return f.Offset.String(), covering(log.Shift(-f.Offset), from, to)
	}
	if f.Zone != "" {
		loc, err := time.LoadLocation(f.Zone)
		if err != nil {
			return "", cli.Usagef("--zone %q: %w: name it as in Europe/Berlin, or give --utc-offset", f.Zone, err)
		}
		off, err := log.OffsetIn(loc)
		if err != nil {
			return "", fmt.Errorf("%w\nGive --utc-offset", err)
		}
		return fmt.Sprintf("%v (%s)", off, f.Zone), covering(log.Shift(-off), from, to)
	}
	return guess(log, from, to)
}

// guess tries this machine's zone and UTC, and succeeds where exactly one of them makes the
// log cover the work. It shifts the log.
func guess(log *smilog.Log, from, to time.Time) (string, error) {
	offsets := map[time.Duration]string{0: "UTC"}
	local, err := log.OffsetIn(time.Local)
	if err != nil {
		return "", fmt.Errorf("%w\nGive --utc-offset", err)
	}
	offsets[local] = "this machine's zone"
	var fits []time.Duration
	// One entry where the local zone is UTC. Covers is asked in the log's time, hence +
	// off.
	for off := range offsets {
		if log.Covers(from.Add(off), to.Add(off)) {
			fits = append(fits, off)
		}
	}
	switch len(fits) {
	case 1:
		log.Shift(-fits[0])
		return fmt.Sprintf("%v (%s, since it fits)", fits[0], offsets[fits[0]]), nil
	case 0:
		return "", fmt.Errorf("%w\nIt was tried as UTC and in this machine's zone. If it is of another zone, give "+
			"--utc-offset or --zone", covering(log, from, to))
	}
	return "", errors.New("it covers the task's work as UTC and in this machine's zone too: say which it is with " +
		"--utc-offset or --zone")
}

// covering returns an error with both spans where a log does not cover the task's work.
func covering(log *smilog.Log, from, to time.Time) error {
	if log.Covers(from, to) {
		return nil
	}
	first, last := log.Extent()
	const layout = "2006-01-02 15:04:05.000"
	return fmt.Errorf("the log runs from %s to %s, the task's work from %s to %s (UTC): it does not cover it",
		first.Format(layout), last.Format(layout), from.UTC().Format(layout), to.UTC().Format(layout))
}

// storeSmi stores the readings of each power column, and its energy between from and to as
// a method's result. A column with a gap gets NaN as energy and the cause as its note.
func storeSmi(ctx context.Context, db *store.DB, id store.TaskID, log *smilog.Log, from, to time.Time,
) ([]store.MethodResult, error) {
	var results []store.MethodResult
	var readings []store.Reading
	// A log has no call times: NaN stands for "not measured".
	nan := measure.Seconds(math.NaN())
	none := store.Timing{P50: nan, P99: nan, Max: nan}
	for _, field := range log.Fields() {
		column := log.Columns[field]
		m := store.MethodResult{
			Method: log.Method(field), From: from, To: to, Call: none, Alone: none, Beside: none,
		}
		e, err := smilog.Energy(column, from, to)
		if err != nil {
			e, m.Note = measure.Joule(math.NaN()), err.Error()
		}
		m.Energy, m.Mean = e, measure.Watt(float64(e)/to.Sub(from).Seconds())
		for _, r := range column {
			readings = append(readings, store.Reading{Method: m.Method, At: r.At, Value: float64(r.Power)})
			if !r.At.Before(from) && !r.At.After(to) {
				m.Readings++
			}
		}
		results = append(results, m)
	}
	if err := db.PutReadings(ctx, id, readings); err != nil {
		return nil, err
	}
	return results, db.PutMethods(ctx, id, results)
}

// ImportReport is the JSON of import nvidia-smi. Skipped counts values that are no numbers.
type ImportReport struct {
	TaskID  int64                 `json:"task_id"`
	Offset  string                `json:"utc_offset"`
	Skipped int                   `json:"values_skipped"`
	Methods []report.MethodReport `json:"methods"`
}

// importFlags are the flags of files that become a task. uGain and uClock are relative
// standard uncertainties (k = 1) of the values and of the time scale.
type importFlags struct {
	name, user, gpu string
	start, events   string
	uGain, uClock   float64
}

// register adds the flags that all such imports have.
func (f *importFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the task (default: the file's)")
	cli.UserFlag(fl, &f.user)
	fl.StringVar(&f.gpu, "gpu", "", "the GPU that was measured")
}

// textFlags adds the flags for facts that text files lack.
func (f *importFlags) textFlags(c *cobra.Command) {
	f.register(c)
	fl := c.Flags()
	fl.StringVar(&f.start, "start", "", "when the file's time zero was, as in 2026-01-31T12:00:00Z (default: when "+
		"the file was last written, less its length)")
	fl.StringVar(&f.events, "events", "",
		"a file of times in µs since 1970, one a line: the window lies between the first and the last")
	cli.RelativeFlag(fl, &f.uGain, "u-gain", 0, "relative standard uncertainty of all scales, as in 0.01 for 1 %")
	cli.RelativeFlag(fl, &f.uClock, "u-scale", 1e-4, "relative standard uncertainty of the file's time scale")
}

// source checks the flags and opens a text file that can be read several times; done closes it.
func (f *importFlags) source(ctx context.Context, path string, in io.Reader) (*source, func() error, error) {
	switch {
	case !(f.uGain >= 0 && f.uGain < 1):
		return nil, nil, cli.Usagef("--u-gain %v: want 0 to 1, as in 0.01 for 1 %%", f.uGain)
	case !(f.uClock >= 0 && f.uClock < 1):
		return nil, nil, cli.Usagef("--u-scale %v: want 0 to 1, as in 1e-4 for 100 ppm", f.uClock)
	}
	file, done, err := importFile(ctx, path, in)
	return &source{ctx: ctx, file: file}, done, err
}

// Incoming is a file on its way to a task: the task's head, and functions that deliver the
// rest in the order before, Stream, finish.
type Incoming struct {
	Format string
	Path   string
	Task   store.NewTask
	Header store.Header
	notes  []string // printed after the import
	rows   int      // scans that Stream delivers, where that is known
	// before stores the parts of the task other than samples, such as kernels; may be nil.
	before func(ctx context.Context, db *store.DB, id store.TaskID) error
	// Stream delivers blocks and events in the order of time.
	Stream func(textin.Sink) error
	// finish ends the task with its result, given the device times of its first and last
	// sample.
	finish func(ctx context.Context, db *store.DB, id store.TaskID, samples measure.Window) error
}

// heads sets the heads of a task that i measured from start on, with the names of flags or else the file's own.
func (in *Incoming) heads(f *importFlags, name, gpu string, i store.Instrument, setup measure.Setup, start time.Time) {
	login, _ := cli.Whoami()
	in.Task = store.NewTask{
		Name: cmp.Or(f.name, name), User: cmp.Or(f.user, login), Launched: start, GPU: cmp.Or(f.gpu, gpu),
	}
	in.Header = store.Header{
		Bench: "import", Instrument: i, Setup: setup, CalibrationID: setup.CalibrationID(), Started: start,
	}
}

// ImportedTask is the JSON of an import that made a task. Resolution is the value of one
// count for each channel, in the channel's unit.
type ImportedTask struct {
	*report.Report
	Format     string             `json:"imported_format"`
	File       string             `json:"imported_file"`
	Resolution map[string]float64 `json:"resolution_by_channel"`
	Notes      []string           `json:"import_notes"`
}

// ImportTask stores a file as a task and prints it. The task is invisible until it is
// complete; after an error it is deleted.
func ImportTask(ctx context.Context, a *cli.App, in *Incoming) (err error) {
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.Sweep(ctx); err != nil {
		return err
	}
	// Each import is a measurement of its own, wherever it is copied to: also a file that is
	// imported twice, with another window.
	in.Task.Partial, in.Task.CaptureID = true, "import-"+rand.Text()
	id, err := db.BeginTask(ctx, in.Task)
	if err != nil {
		return err
	}
	bar := a.Progress("importing " + nameOf(in.Path))
	defer bar.End()
	a.Keep("nothing of it was stored")
	if err := storeIncoming(ctx, db, id, in, bar); err != nil {
		if gone := db.DeleteTask(context.WithoutCancel(ctx), id); gone != nil {
			return errors.Join(fmt.Errorf("%s: %w", in.Path, err),
				fmt.Errorf("what was stored of it is not deleted: %w: the next import does that", gone))
		}
		return fmt.Errorf("%s: %w\nNothing of it was stored", in.Path, err)
	}
	bar.End()
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r := report.NewReport(&t, a.DB)
	if a.JSON {
		resolution := map[string]float64{}
		for _, c := range t.Setup.Channels {
			resolution[c.Name] = c.Gain
		}
		return a.PrintJSON(ImportedTask{r, in.Format, in.Path, resolution, append([]string{}, in.notes...)})
	}
	report.RenderReport(a.Out, r)
	out.Each(a.Out, "  %s\n", in.notes)
	return report.PlotTask(a, ctx, db, &t, r)
}

// source opens a file whose readers fail once ctx has ended. A file is read more than once.
type source struct {
	ctx  context.Context
	file string
	bar  *cli.Progress
}

func (s *source) open() (io.ReadCloser, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	return &sourceReader{File: f, source: s, of: int(info.Size())}, err
}

// look is textin.Look with its progress.
func (s *source) look(a *cli.App, path string, rows textin.Source, columns []textin.Column) (*textin.Survey, error) {
	a.Keep("nothing of it was stored")
	s.bar = a.Progress("reading " + nameOf(path))
	defer func() { s.bar.End(); s.bar = nil }()
	return textin.Look(rows, columns)
}

type sourceReader struct {
	*os.File
	source   *source
	done, of int
}

// Read fails with the cause of the end of the source's context.
func (r *sourceReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.source.ctx); err != nil {
		return 0, err
	}
	n, err := r.File.Read(p)
	r.done += n
	r.source.bar.Set(r.done, r.of)
	return n, err
}

// provenance returns the reason text of an imported task: name, format, the first 8 bytes
// of the SHA-256 of the file at path, and the window. It reads the whole file.
func provenance(format, path, name, window string) (string, error) {
	x, err := cli.ReadFile(path, sumOf)
	return fmt.Sprintf("imported from %s (%s, SHA-256 %.16s) by %s; window: %s",
		name, format, x.sum, madeBy(), window), err
}

// importFile is fileOf until ctx ends: a terminal or a pipe may never answer. Then it returns at once and
// leaves a reader of in behind.
func importFile(ctx context.Context, path string, in io.Reader) (file string, done func() error, err error) {
	type result struct {
		file string
		done func() error
		err  error
	}
	out := make(chan result, 1)
	go func() {
		file, done, err := fileOf(path, in)
		out <- result{file, done, err}
	}()
	select {
	case r := <-out:
		return r.file, r.done, r.err
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
}

// fileOf returns a path that can be read several times: the file itself, or an unpacked
// or copied temporary file for compressed input (gzip, zstd), pipes and standard input.
// done removes the copy. It copies at most maxCopied bytes.
func fileOf(path string, in io.Reader) (file string, done func() error, err error) {
	none := func() error { return nil }
	regular := false
	if path != "-" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return "", none, err
		case info.IsDir():
			return "", none, cli.Usagef("%s is a folder: name a file", path)
		}
		regular = info.Mode().IsRegular()
		f, err := os.Open(path)
		if err != nil {
			return "", none, err
		}
		defer f.Close()
		in = f
	}
	plain, packed, err := cli.Decompressed(in)
	if err != nil {
		return "", none, fmt.Errorf("%s: %w", path, err)
	}
	defer plain.Close()
	if regular && !packed {
		return path, none, nil
	}
	tmp, err := os.CreateTemp("", "wattmark-import-*")
	if err != nil {
		return "", none, err
	}
	file, done = unnamed(tmp)
	n, err := io.Copy(tmp, io.LimitReader(plain, maxCopied+1))
	if err == nil && n > maxCopied {
		err = fmt.Errorf("more than %d GiB to copy into %s, which is needed to read it twice: unpack it to a file, "+
			"or cut it", maxCopied>>30, os.TempDir())
	}
	if err != nil {
		return "", none, errors.Join(fmt.Errorf("%s: %w", path, err), done())
	}
	return file, done, nil
}

// maxCopied bounds the temporary copy in bytes.
const maxCopied = 8 << 30

// unnamed unlinks a temporary file, so that nothing remains of it however the program ends,
// and returns the path under /proc by which this process still opens it. On systems without
// such a path the file keeps its name, and done removes it.
func unnamed(tmp *os.File) (path string, done func() error) {
	path = fmt.Sprintf("/proc/self/fd/%d", tmp.Fd())
	a, errA := os.Stat(path)
	b, errB := tmp.Stat()
	if errA == nil && errB == nil && os.SameFile(a, b) && os.Remove(tmp.Name()) == nil {
		return path, tmp.Close
	}
	return tmp.Name(), func() error { return errors.Join(tmp.Close(), os.Remove(tmp.Name())) }
}

// original returns the file to name and hash in a task's provenance: the given one where it
// is a regular file, else its copy.
func original(path, copied string) string {
	if info, err := os.Stat(path); path != "-" && err == nil && info.Mode().IsRegular() {
		return path
	}
	return copied
}

// startOf returns the time of day at a file's time zero: --start, or the file's
// modification time less its length, with a note that this is an assumption.
func (f *importFlags) startOf(path string, length time.Duration) (time.Time, string, error) {
	if f.start != "" {
		t, err := time.Parse(time.RFC3339Nano, f.start)
		if err != nil {
			return t, "", cli.Usagef("--start %q: want a time as in 2026-01-31T12:00:00Z", f.start)
		}
		return t, "", nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, "", err
	}
	return info.ModTime().Add(-length), "the file does not say when it was recorded: it is taken to end when it was " +
		"last written (--start tells it)", nil
}
