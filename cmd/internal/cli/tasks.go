package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/term"
)

// OpenDB opens the task database for reading; it must exist and need not be writable. A
// database of an older version is migrated if it is writable, else a copy of it is. Of a host
// a copy of the named tasks is opened; without names that is a usage error.
func (a *App) OpenDB(ctx context.Context, tasks ...string) (*store.DB, error) {
	a.Keep(Unchanged)
	if _, ok := a.OnHost(); ok {
		return a.fetch(ctx, tasks)
	}
	if err := a.mustExist(); err != nil {
		return nil, err
	}
	db, err := store.OpenReadOnly(ctx, a.DB)
	if !errors.Is(err, store.ErrOlder) {
		return db, err
	}
	if db, err = store.Open(ctx, a.DB); CannotWrite(err) {
		db, err = store.OpenSource(ctx, a.DB)
	}
	return db, err
}

// Reading returns what read has of the database that OpenDB opens.
func Reading[T any](a *App, ctx context.Context, read func(*store.DB) (T, error)) (x T, err error) {
	db, err := a.OpenDB(ctx)
	if err != nil {
		return x, err
	}
	defer db.Close()
	return read(db)
}

// OpenToChange opens the task database for writing; it must exist.
func (a *App) OpenToChange(ctx context.Context) (*store.DB, error) {
	a.Keep("what was changed before is kept")
	if _, ok := a.OnHost(); ok {
		return nil, a.errHost()
	}
	if err := a.mustExist(); err != nil {
		return nil, err
	}
	return store.Open(ctx, a.DB)
}

// CannotWrite reports whether err is that of opening a database without the right to write.
func CannotWrite(err error) bool {
	return errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrCannotOpen)
}

// mustExist returns an error with the exit code 4 if the database is a file that does not exist.
func (a *App) mustExist() error {
	if _, err := os.Stat(a.DB); errors.Is(err, os.ErrNotExist) && !store.OnServer(a.DB) {
		return NotFoundf("no task database at %s: measure something first (wattmark demo) or "+
			"name another with --db", a.DB)
	}
	return nil
}

// TaskID parses a task's number from the command line.
func TaskID(arg string) (store.TaskID, error) {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 1 {
		return 0, Usagef("%q is not a task number: list them with wattmark tasks", arg)
	}
	return store.TaskID(n), nil
}

// OneTask takes exactly one task.
var OneTask = cobra.MatchAll(cobra.ExactArgs(1), Tasks)

// Tasks is a cobra.PositionalArgs: tasks. Numbers are checked before the database is opened.
func Tasks(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, err := TaskID(arg); err != nil && isNumber(arg) {
			return err
		}
	}
	return nil
}

// isNumber reports whether arg is no name of a task.
func isNumber(arg string) bool {
	_, err := strconv.ParseInt(arg, 10, 64)
	return err == nil || arg == ""
}

// Number returns the number of the task that arg names: a number; latest, the newest task; or a
// name, of which the newest counts. It asks the database or the host for the latter two.
func (a *App) Number(ctx context.Context, arg string) (store.TaskID, error) {
	return a.number(ctx, arg, a.List)
}

// number is Number with the list of tasks by list.
func (a *App) number(ctx context.Context, arg string,
	list func(context.Context, store.Query) ([]store.Row, error),
) (store.TaskID, error) {
	if isNumber(arg) {
		return TaskID(arg)
	}
	q := store.Query{Name: arg, Limit: 1}
	if arg == "latest" {
		q.Name = ""
	}
	found, err := list(ctx, q)
	if err == nil && len(found) == 0 {
		err = NotFoundf("no task %q in %s: list them with wattmark tasks", arg, a.DB)
	}
	if err != nil {
		return 0, err
	}
	return found[0].ID, nil
}

// OneGroup is a cobra.PositionalArgs: --group with a number, and no argument.
func OneGroup(c *cobra.Command, args []string) error {
	if n, err := c.Flags().GetInt64("group"); err != nil || n < 1 || len(args) > 0 {
		return errors.New("--group wants the number of a group, and no task beside it")
	}
	return nil
}

// Task reads the task that arg names, as for Number; one that does not exist has the exit code 4.
func (a *App) Task(ctx context.Context, db *store.DB, arg string) (*store.Task, error) {
	id, err := a.number(ctx, arg, db.Tasks)
	if err != nil {
		return nil, err
	}
	return a.TaskByID(ctx, db, id)
}

// TaskByID reads a task; one that does not exist has the exit code 4.
func (a *App) TaskByID(ctx context.Context, db *store.DB, id store.TaskID) (*store.Task, error) {
	t, err := db.Task(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, NotFoundf("no task %d in %s: list them with wattmark tasks", id, a.DB)
	}
	return &t, err
}

// OpenTask opens the database for reading and reads the task that arg names. The caller
// closes the database; after an error there is nothing to close.
func (a *App) OpenTask(ctx context.Context, arg string) (*store.DB, *store.Task, error) {
	db, err := a.OpenDB(ctx, arg)
	if err != nil {
		return nil, nil, err
	}
	t, err := a.Task(ctx, db, arg)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, t, nil
}

// ParseAge parses a positive duration: a number of days (90d) or weeks (12w), or a Go
// duration (36h). Others are usage errors.
func ParseAge(s string) (age time.Duration, err error) {
	number := strings.TrimRight(s, "dw")
	unit := map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[s[len(number):]]
	if unit != 0 {
		var n float64
		n, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
		// Guard the conversion below: time.Duration overflows at 292 years.
		if n*unit.Hours() > 100*365*24 {
			err = errors.New("more than a hundred years")
		}
		age = time.Duration(n * float64(unit))
	} else {
		age, err = time.ParseDuration(s)
	}
	if err != nil || !(age > 0) {
		return 0, Usagef("%q is not an age: write 90d, 12w or 36h", s)
	}
	return age, nil
}

// ParseTime parses a date or an RFC 3339 instant, in local time without a zone, or an age as
// ParseAge does, before now; an empty text is the zero time, which stands for no limit.
func ParseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	if age, err := ParseAge(s); err == nil {
		return time.Now().Add(-age), nil
	}
	return time.Time{}, Usagef("%q is not a time: write 2026-01-31, 2026-01-31T15:04:05Z, or 7d for seven days ago", s)
}

// Number returns a pointer for JSON, nil where v is not a finite number.
func Number[T ~float64](v T) *float64 {
	if !measure.Known(v) {
		return nil
	}
	return new(float64(v))
}

// PrintJSON writes v as indented JSON to the standard output.
func (a *App) PrintJSON(v any) error {
	enc := json.NewEncoder(Raw(a.Out))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Print writes a result to the standard output: v as JSON with --json, else by text.
func (a *App) Print(v any, text func(io.Writer)) error {
	if a.JSON {
		return a.PrintJSON(v)
	}
	text(a.Out)
	return nil
}

// Textf writes a text beside a result to the standard output, formatted as by fmt.Fprintf; nothing with --json.
func (a *App) Textf(format string, args ...any) {
	if !a.JSON {
		fmt.Fprintf(a.Out, format, args...)
	}
}

// Hintf writes what to do next to the standard output, formatted as by fmt.Fprintf; nothing with --quiet or --json.
func (a *App) Hintf(format string, args ...any) {
	if !a.Quiet {
		a.Textf(format, args...)
	}
}

// Stepf writes the step that runs to standard error, formatted as by fmt.Fprintf, in the place of a progress line;
// nothing with --quiet.
func (a *App) Stepf(format string, args ...any) {
	if !a.Quiet {
		if f, ok := Raw(a.Err).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			format = "\r\x1b[K" + format
		}
		fmt.Fprintf(a.Err, format, args...)
	}
}

// Size is the pflag.Value of a number of bytes, written as 50GB or 500MiB.
type Size int64

// String returns the size in units of 1000, as all sizes of the output, except for whole
// multiples of 1 MiB, which it returns in units of 1024.
func (s *Size) String() string {
	switch n := int64(*s); {
	case n == 0:
		return "0"
	case n%(1<<20) == 0:
		return humanize.IBytes(uint64(n))
	default:
		return SizeText(n)
	}
}

func (s *Size) Type() string { return "size" }

func (s *Size) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<60 {
		return fmt.Errorf("%q is not a size: write 50GB, 500MiB or 0", text)
	}
	*s = Size(n)
	return nil
}

// SizeText returns a number of bytes in units of 1000, as "1.2 GB".
func SizeText[N int64 | uint64 | float64](n N) string { return humanize.Bytes(uint64(max(n, 0))) }

// FirstLineOf returns the first line of an error's text.
func FirstLineOf(err error) string { return FirstLine(err.Error()) }

// FirstLine returns a text up to its first line break.
func FirstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// SleepUntil blocks until the time at, or until ctx ends; it returns false for the latter.
func SleepUntil(ctx context.Context, at time.Time) bool {
	return backoff.Sleep(ctx, time.Until(at)) == nil
}

// The default addresses of the services of the two machines.
const (
	DefaultMonitor = "127.0.0.1:" + wire.MonitorPort
	DefaultHost    = "127.0.0.1:" + wire.HostPort
)

// SmiPrefix is the prefix of methods' names that are columns of an nvidia-smi log.
const SmiPrefix = "nvidia-smi "

// ShellWords joins arguments to a command line, quoted for a shell where needed.
func ShellWords(args []string) string {
	if len(args) == 0 {
		return "PROGRAM"
	}
	var out []string
	for _, s := range args {
		if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+@%-") != "" {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// InjectionEnv is the variable whose library libcuda loads into a program at its initialisation.
const InjectionEnv = "CUDA_INJECTION64_PATH"

// ErrPlanned ends a measurement after its plan, before a task exists: only the plan was wanted.
var ErrPlanned = errors.New("the plan was all that was asked for")

// Fit pads a text with spaces to a number of terminal columns, or cuts it with an ellipsis.
func Fit(s string, columns int) string {
	s = ansi.Truncate(s, columns, "…")
	return s + strings.Repeat(" ", columns-ansi.StringWidth(s))
}

// OneLine returns a text in one line, without control characters.
func OneLine(s string) string { return measure.Printable(strings.Join(strings.Fields(s), " ")) }

// Whoami returns the login name, and the holder of a bench that others see: user@host.
func Whoami() (login, holder string) {
	login = "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		login = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return login, login + "@" + host
}

// Dialog returns the stream for questions: with --json standard error, to keep them out of
// the object.
func (a *App) Dialog() io.Writer {
	if a.JSON {
		return a.Err
	}
	return a.Out
}

// Ask prints a question and reads the answer: true for y or yes. The end of the input is a
// usage error.
func (a *App) Ask(question string) (bool, error) {
	fmt.Fprint(a.Dialog(), question)
	line, err := a.Line()
	if err != nil {
		fmt.Fprintln(a.Dialog())
		return false, Usagef("nobody answers, and nothing was written: answer y, or give --yes")
	}
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes", nil
}

// Line reads a line of the standard input; the last one may lack its line break.
func (a *App) Line() (string, error) {
	if a.In == nil {
		return "", errors.New("there is no input")
	}
	if a.lines == nil {
		a.lines = bufio.NewReader(a.In)
	}
	line, err := a.lines.ReadString('\n')
	if f, ok := a.In.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.Dialog()) // a terminal echoes the Enter, a file does not
	}
	if line != "" {
		err = nil
	}
	return line, err
}

// AtDay returns the local date as 2006-01-02.
func AtDay(t time.Time) string { return t.Local().Format("2006-01-02") }

// Expired returns the suffix " (expired DATE)" for a calibration record past its validity, else "".
func Expired(r *calib.Record) string {
	if !r.ValidUntil.IsZero() && time.Now().After(r.ValidUntil) {
		return " (expired " + AtDay(r.ValidUntil) + ")"
	}
	return ""
}
