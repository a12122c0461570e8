package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/study/compare"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	wire "github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// seriesFlags are the flags of repeated runs.
type seriesFlags struct {
	times    int
	with     []string // command lines, or flags of a benchmark, of A and B
	untilU   float64
	coolDown time.Duration
}

// pilotPairs are the pairs whose scatter sets the number of all with --until-u.
const pilotPairs = 8

func (f *seriesFlags) register(fl *pflag.FlagSet) {
	fl.IntVar(&f.times, "times", 0, "repeat the run so many times, or so many pairs of --with; 0 for a single run")
	fl.StringArrayVar(&f.with, "with", nil,
		"with --times: a program with its arguments, or '--benchmark half --duration 1s'; twice, for A and B")
	cli.RelativeFlag(fl, &f.untilU, "until-u", 0, fmt.Sprintf("with --with: set the number of pairs, up to --times, "+
		"after the first %d, so that U of B over A in energy is no wider, as in 0.005 or 0.5%%", pilotPairs))
	fl.DurationVar(&f.coolDown, "cool-down", 2*time.Minute,
		"with --times: wait at most so long until the card's power is within 2 % of that before the first run; 0 for no wait")
}

// wanted reports whether the flags ask for more than one run.
func (f *seriesFlags) wanted() bool { return f.times != 0 || len(f.with) > 0 || f.untilU != 0 }

// version is one of the works of a series.
type version struct {
	RunFlags
	args []string
	ids  []store.TaskID // complete tasks
}

// versions checks the flags of a series and returns its versions: one of repeats, two of
// --with. It needs neither GPU nor bench. Errors have ExitUsage, or a shell's code for a
// program that cannot be started.
func (f *RunFlags) versions(args []string) (out []version, err error) {
	if err := session.NotNegative("--cool-down", f.coolDown); err != nil {
		return nil, err
	}
	own := session.CountTrue(len(args) > 0, f.Benchmark != "", f.PTX != "")
	switch {
	case !(f.untilU >= 0 && f.untilU < 1):
		return nil, cli.Usagef("--until-u %v: want more than 0 and less than 1, as in 0.005 or 0.5%%", f.untilU)
	case f.times < 2:
		return nil, cli.Usagef("--times %d: want 2 or more", f.times)
	case f.gpus != "" || strings.Contains(f.Monitor, ","):
		return nil, cli.Usagef("--times repeats runs on one GPU, without --gpus")
	case len(f.with) == 0 && f.untilU != 0:
		return nil, cli.Usagef("--until-u is of the ratio of two versions: name them with --with")
	case len(f.with) == 0:
		return []version{{RunFlags: *f, args: args}}, nil
	case len(f.with) != 2 || own > 0:
		return nil, cli.Usagef("--with names the work: give it twice, for A and B, and no other program or benchmark")
	case f.Redact:
		return nil, cli.Usagef("--redact hides the arguments behind --, not those of --with")
	case f.untilU != 0 && f.times <= pilotPairs:
		return nil, cli.Usagef("--until-u sets the number of pairs after %d: want --times above that", pilotPairs)
	}
	for _, text := range f.with {
		v := version{RunFlags: *f}
		if v.args, err = words(text); err != nil {
			return nil, cli.Usagef("--with %q: %w", text, err)
		}
		if len(v.args) > 0 && strings.HasPrefix(v.args[0], "-") {
			fl := pflag.NewFlagSet("--with", pflag.ContinueOnError)
			fl.SetOutput(io.Discard)
			v.addBenchmark(fl)
			if err = cli.FlagError(fl, fl.Parse(v.args)); err == nil && (fl.NArg() > 0 || v.Benchmark == "") {
				err = errors.New("want --benchmark, --duration and --pulse")
			}
			v.args = nil
		} else if len(v.args) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			return nil, cli.Usagef("--with %q: %w", text, err)
		}
		v.with = nil // it is in args
		if err := errors.Join(v.checkWork(v.args), v.autoCheck(v.args)); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// words splits a command line as a shell does: quotes and backslashes, and no expansion.
func words(text string) (out []string, err error) {
	var word []rune
	var quote rune
	open, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			word, escaped = append(word, c), false
		case c == '\\' && quote != '\'':
			escaped, open = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if open {
				out, word, open = append(out, string(word)), nil, false
			}
		case strings.ContainsRune("|&;<>()$`*?", c):
			return nil, fmt.Errorf("%c is for a shell: write sh -c '…', or quote it", c)
		default:
			word, open = append(word, c), true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if open {
		out = append(out, string(word))
	}
	return out, nil
}

// series makes repeated runs.
type series struct {
	app      *cli.App  // whose database the runs are measured into
	hand     *handOver // of each run to a host; nil for none
	name     string
	planned  int
	versions []version
	monitor  *monitorclient.Client // for the power at rest
	rest     measure.Watt          // before the first run; NaN where unknown
	flags    *seriesFlags
}

// measureSeries makes the runs, a task each, and prints their comparison, or their means.
// After an interruption, or where a run fails, it prints that of the runs so far beside
// the error. It blocks until all is stored.
func measureSeries(ctx context.Context, a *cli.App, f RunFlags, args []string) (err error) {
	s := &series{app: a, hand: f.hand, planned: f.times, rest: measure.Watt(math.NaN()), flags: &f.seriesFlags}
	if s.versions, err = f.versions(args); err != nil {
		return err
	}
	s.name = fmt.Sprintf("%s-%06x", cmp.Or(f.Name, s.versions[0].called()), rand.IntN(1<<24))
	if s.monitor, err = cli.DialMeter(ctx, f.Monitor, monitorclient.Options{Version: cli.Version()}); err != nil {
		return err
	}
	defer s.monitor.Close()
	err = s.run(ctx)
	return errors.Join(err, s.print(context.WithoutCancel(ctx)))
}

// called is the default name of a version's tasks.
func (v *version) called() string {
	if len(v.args) > 0 {
		return filepath.Base(v.args[0])
	}
	return cmp.Or(v.Benchmark, filepath.Base(v.PTX))
}

// run makes the runs until the planned number, an interruption or a failure. The order of
// each pair is drawn at random.
func (s *series) run(ctx context.Context) error {
	for turn := 1; turn <= s.planned; turn++ {
		first := rand.IntN(len(s.versions))
		for k := range s.versions {
			if err := s.measure(ctx, turn, (first+k)%len(s.versions)); err != nil {
				return err
			}
		}
		if s.flags.untilU != 0 && turn == pilotPairs {
			if err := s.plan(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure waits until the card has cooled down and makes a run of a version. A task that is
// not complete, as with lost samples, is reported and not compared.
func (s *series) measure(ctx context.Context, turn, i int) error {
	v := &s.versions[i]
	tags := maps.Clone(v.Tags) // those of the series replace the user's of the same name
	maps.Copy(tags, map[string]string{
		compare.TagSeries: s.name, compare.TagTurn: strconv.Itoa(turn), compare.TagPlanned: strconv.Itoa(s.planned),
	})
	label := ""
	if len(s.versions) == 2 {
		tags[compare.TagSide] = string(rune('A' + i))
		label = tags[compare.TagSide] + ", "
	}
	if s.flags.untilU != 0 && turn > pilotPairs {
		tags[compare.TagSecond] = "yes"
	}
	if w := s.cool(ctx); measure.Known(w) {
		tags[compare.TagRest] = fmt.Sprintf("%.3f", float64(w))
	}
	if i := cli.Interrupted(ctx, fmt.Sprintf("series %s, before turn %d", s.name, turn)); i != nil {
		return i
	}
	f := v.RunFlags
	f.quiet, f.Tags = true, tags
	var t store.Task
	err := measureTask(ctx, s.app, f, v.args, func(db *store.DB, id store.TaskID) (err error) {
		t, err = db.Task(context.WithoutCancel(ctx), id)
		return err
	})
	if t.ID == 0 {
		return err
	}
	if s.hand != nil {
		if s.hand.err != nil {
			return cmp.Or(err, errors.New("the series has ended")) // the reason is that of handOver
		}
		// By now the host has it, under its own number.
		t.ID = s.hand.sent[len(s.hand.sent)-1]
		err = s.hand.interrupted(ctx, err)
	}
	if t.State == store.Complete && t.Failure == nil {
		v.ids = append(v.ids, t.ID)
	}
	fmt.Fprintf(s.app.Err, "turn %d of %d: %stask %d (%s)\n", turn, s.planned, label, t.ID, t.State.String())
	return err
}

// stored is where the runs are once they are stored: a database, or a host.
func (s *series) stored() *cli.App {
	if s.hand != nil {
		return s.hand.host
	}
	return s.app
}

// plan sets the number of pairs by the scatter of those so far, and stores it with their
// tasks.
func (s *series) plan(ctx context.Context) error {
	r, err := compare.Tasks(ctx, s.stored(), s.versions[0].ids, s.versions[1].ids)
	if err != nil {
		return err
	}
	target := s.flags.untilU
	wanted := fmt.Sprintf("%.4g %%", 100*target)
	n := r.Quantities[0].PairsFor(measure.Ratio(target), s.planned)
	if n == 0 {
		fmt.Fprintf(s.app.Err, "wattmark: U of %s is not within reach of %d pairs: all of them are run\n", wanted, s.planned)
		return nil
	}
	fmt.Fprintf(s.app.Err, "by the scatter of %d pairs, %d are enough for U of %s\n", pilotPairs, n, wanted)
	s.planned = n
	return s.tag(ctx, map[string]string{compare.TagPlanned: strconv.Itoa(n)})
}

// tag sets tags of all complete runs.
func (s *series) tag(ctx context.Context, tags map[string]string) (err error) {
	ids := slices.Concat(s.versions[0].ids, s.versions[1].ids)
	if s.hand != nil {
		return s.hand.host.AskHost(ctx, func(c *client.Client) (err error) {
			for _, id := range ids {
				_, failed := c.SetTags(ctx, int64(id), tags)
				err = errors.Join(err, failed)
			}
			return err
		})
	}
	db, err := store.Open(ctx, s.app.DB)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err = errors.Join(err, db.SetTags(ctx, id, tags, nil))
	}
	return errors.Join(err, db.Close())
}

// restSpan is the time over which the power at rest is averaged.
const restSpan = time.Second

// cool waits until the power is back at that before the first run, within 2 %, or until
// the time is over. It returns the last power; NaN where none is read.
func (s *series) cool(ctx context.Context) measure.Watt {
	if s.flags.coolDown == 0 {
		return measure.Watt(math.NaN())
	}
	until := time.Now().Add(s.flags.coolDown)
	for waited := false; ; waited = true {
		w, err := s.atRest(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(s.app.Err, "wattmark: no cool-down: %v\n", err)
			fallthrough
		case err != nil:
			return measure.Watt(math.NaN())
		case !measure.Known(s.rest):
			s.rest = w
			return w
		case w <= s.rest*1.02:
			return w
		case time.Now().After(until):
			fmt.Fprintf(s.app.Err, "wattmark: the card draws %s after %v of cool-down, %s before the first run\n", w,
				s.flags.coolDown, s.rest)
			return w
		case !waited:
			fmt.Fprintf(s.app.Err, "cooling down: the card draws %s, %s before the first run\n", w, s.rest)
		}
	}
}

// atRest returns the mean power of the free bench over restSpan, by its meter.
func (s *series) atRest(ctx context.Context) (measure.Watt, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*restSpan)
	defer cancel()
	enough := errors.New("enough")
	var rest resting
	err := s.monitor.Watch(ctx, wire.WatchOptions{Every: restSpan / 10, Idle: true}, func(m wire.Moment) error {
		if m.Trouble != "" {
			return errors.New(m.Trouble)
		}
		if rest.add(m); rest.over() >= measure.SecondsOf(restSpan) {
			return enough
		}
		return nil
	})
	switch {
	case errors.Is(err, enough):
		return rest.mean(), nil
	case err != nil:
		return 0, err
	}
	return 0, fmt.Errorf("the bench at %s was not free", s.monitor.Address())
}

// resting is the power of a free bench since it was last in use. Its zero value is ready to use.
type resting struct {
	begun      bool
	from, last measure.Seconds
	energy     measure.Joule
}

// add takes a moment. One of a capture, another user's or our own that is just being released,
// ends the rest; the first one behind it may have begun before the bench was free.
func (r *resting) add(m wire.Moment) {
	switch {
	case m.CaptureID != "":
		*r = resting{}
	// Device time begins anew with each look at a free bench.
	case !r.begun || m.T <= r.last:
		*r = resting{begun: true, from: m.T, last: m.T}
	default:
		r.energy += measure.Joule(float64(m.Total) * float64(m.T-r.last))
		r.last = m.T
	}
}

func (r *resting) over() measure.Seconds { return r.last - r.from }

func (r *resting) mean() measure.Watt { return measure.Watt(float64(r.energy) / float64(r.over())) }

// print prints the comparison of two versions, or the means of one, and the series.
func (s *series) print(ctx context.Context) error {
	if len(s.versions[0].ids) == 0 || len(s.versions) == 2 && len(s.versions[1].ids) == 0 {
		return nil // the error of the run is all there is
	}
	fmt.Fprintf(s.app.Err, "series %s: wattmark tasks --tag series=%s\n", s.name, s.name)
	if len(s.versions) == 1 {
		r, err := compare.Repeats(ctx, s.stored(), s.versions[0].ids)
		if err != nil {
			return err
		}
		return s.app.Print(r, r.Render)
	}
	r, err := compare.Tasks(ctx, s.stored(), s.versions[0].ids, s.versions[1].ids)
	if err != nil {
		return err
	}
	return s.app.Print(r, r.Render)
}
