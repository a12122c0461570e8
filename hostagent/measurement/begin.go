package measurement

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/store"
)

// begin takes the bench and records the task. Before the capture has started
// there is nothing to record: an error leaves no task.
func begin(ctx context.Context, cfg Config) (*attempt, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// A full database is found before the bench is taken, not after.
	if err := cfg.DB.Room(ctx); err != nil {
		return nil, fmt.Errorf("no room for a task: %w", err)
	}
	cfg.Lease, cfg.Holder = cmp.Or(cfg.Lease, defaultLease), cmp.Or(cfg.Holder, cfg.User)
	s := &attempt{cfg: cfg, line: cfg.line}
	if s.line == nil {
		s.line = newTimeline(cfg.Now)
	}
	if cfg.Records {
		s.line.others()
	}
	if err := s.examine(ctx); err != nil {
		return nil, err
	}
	s.enter(PhaseCapture)
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	// From here on this process measures the capture: a recovery in it leaves the task alone.
	measuring.Store(s.capture, true)
	info, origin := gpu.Identify(cfg.Device.Info(), s.cfg.Sensor), cfg.Provenance
	if origin != nil {
		origin = new(*origin)
		origin.MonitorVersion = s.bench.Version
	}
	var err error
	s.id, err = cfg.DB.BeginTask(ctx, store.NewTask{
		Name: cfg.Name, User: cfg.User, Job: cfg.Job, Launched: s.line.at(s.line.now()),
		Monitor: cfg.Monitor.Address(), CaptureID: s.capture,
		GPU: info.Name, GPUUUID: info.UUID, Driver: info.Driver, Marker: s.spec,
		Owner: cfg.Owner, Group: cfg.Group, Tags: cfg.Tags, Note: cfg.Note, Provenance: origin,
	})
	if err != nil {
		measuring.Delete(s.capture)
		return nil, errors.Join(err, s.abandon(ctx))
	}
	s.tell()
	return s, nil
}

// examine reads the bench, refuses one that cannot measure this GPU, as far as the GPU is
// known before it is open, and fits the marker to it. It takes nothing.
func (s *attempt) examine(ctx context.Context) (err error) {
	s.enter(PhaseBench)
	if s.bench, err = s.cfg.Monitor.GetBench(ctx); err != nil {
		return err
	}
	if len(s.bench.Setup.Channels) == 0 {
		return fmt.Errorf("%w: %s", ErrBench, s.bench.Trouble)
	}
	if card := s.cfg.Device.Info(); card.UUID != "" || s.cfg.Open == nil {
		if err := checkGPU(&s.bench, s.cfg.Monitor.Address(), card, s.cfg.MustSayGPU); err != nil {
			return err
		}
	}
	// A meter that averages needs the level for two averages before the marker, one that lags
	// for five time constants.
	if s.cfg.Lead == 0 {
		r := s.bench.Setup.Response
		s.cfg.Lead = max(leastLead, (2*(r.Update+r.Window) + 5*r.Tau).Duration(), wall.Reach(&s.bench.Setup).Duration())
	}
	if s.cfg.Unmarked {
		return nil
	}
	if s.cfg.Marker != nil {
		if s.spec = *s.cfg.Marker; s.spec.Code == marker.None {
			return nil
		}
	} else {
		s.spec = marker.ProfileFor(s.bench.Setup, cmp.Or(s.cfg.Tag, rand.Uint32()))
	}
	if every, least := s.cfg.Marks.Every, 4*s.spec.Duration().Duration(); every > 0 && every < least {
		return fmt.Errorf("%w: marks every %v: one takes %v by this meter, play one every %v or less often",
			marker.ErrSpec, every,
			least/4, least.Round(time.Millisecond))
	}
	return s.spec.Validate()
}

// start takes the bench, and waits for it in the monitor's queue. When the caller gives up
// meanwhile the monitor still has courtesy to answer: a capture can be stopped only by its
// id, which is in the answer.
func (s *attempt) start(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(courtesy, cancel)
		context.AfterFunc(call, func() { timer.Stop() })
	})
	defer stop()
	if s.bench.Holder != "" && s.cfg.Wait > 0 && s.cfg.Warn != nil {
		s.cfg.Warn(fmt.Sprintf("the bench is held by %s: waiting for it, %v at most", s.bench.Holder, s.cfg.Wait))
	}
	s.began.Start = s.line.now()
	if s.cfg.Unmarked {
		if _, err := s.cfg.Monitor.GetBench(call); err != nil {
			return err
		}
		s.answers, s.began.Start = s.line.now().Sub(s.began.Start), s.line.now()
		s.cfg.Lead = max(s.cfg.Lead, s.answers+firstScans) // the work lies within the samples wherever they began
	}
	started, err := s.cfg.Monitor.Start(call, session.Request{
		Holder: s.cfg.Holder, TaskName: s.cfg.Name, Marker: s.spec, Lease: s.cfg.Lease, Wait: s.cfg.Wait,
	})
	s.began.End = s.line.now()
	gaveUp := context.Cause(ctx)
	if err != nil {
		return errors.Join(err, gaveUp)
	}
	if s.capture = started.CaptureID; gaveUp != nil {
		return errors.Join(gaveUp, s.abandon(ctx))
	}
	return nil
}

// open opens the GPU while the bench is held, so that no other measurement sees it.
func (s *attempt) open(ctx context.Context) error {
	if s.cfg.Open == nil {
		return nil
	}
	lease := s.keepLease(ctx)
	sensor, err := s.cfg.Open(ctx)
	if err := errors.Join(err, lease()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if sensor != nil {
		s.cfg.Sensor = sensor
	}
	return checkGPU(&s.bench, s.cfg.Monitor.Address(), s.cfg.Device.Info(), s.cfg.MustSayGPU)
}

// abandon frees the bench of a capture that has no task.
func (s *attempt) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if _, err := s.cfg.Monitor.Stop(ctx, s.capture); err != nil {
		return err
	}
	return s.cfg.Monitor.Release(ctx, s.capture)
}

// ErrWrongGPU: the bench measures another GPU than the one that does the work, or states
// none where one is required.
var ErrWrongGPU = errors.New("the bench and the GPU do not belong together")

// checkGPU compares the GPU in the bench file with the GPU that is to do the work. A bench
// that states none fits any GPU, unless mustSay.
func checkGPU(b *session.Bench, address string, card gpu.Info, mustSay bool) error {
	switch {
	case b.GPU == "" && mustSay:
		return fmt.Errorf("%w: bench %s at %s does not say which GPU it measures: write gpu: GPU-… (nvidia-smi -L) "+
			"into its bench file", ErrWrongGPU, b.Name, address)
	case b.GPU == "" || measure.SameGPU(b.GPU, card.UUID):
		return nil
	}
	return fmt.Errorf("%w: bench %s at %s measures %s, and the work is for %s (%s): name that GPU, or the monitor of "+
		"this one", ErrWrongGPU, b.Name, address, b.GPU, card.UUID, card.Name)
}

// MonitorBench is a monitor that was asked for its bench. Err is not nil where
// it did not answer.
type MonitorBench struct {
	Address string
	Bench   session.Bench
	Err     error
}

// Assignment is the monitor that measures a GPU; Monitor is -1 where none does, with the
// reason in Missing.
type Assignment struct {
	Monitor int
	Missing error
}

// Assign gives each GPU the monitor whose bench measures it, in the order of the GPUs. A
// bench that states no GPU serves where there is one GPU and one monitor.
//
// A GPU without a monitor is Missing while some monitor did not answer: it may be that
// one's. Any other mismatch wraps ErrWrongGPU; where no monitor answers, the error joins
// their errors.
func Assign(gpus []gpu.Info, monitors []MonitorBench) ([]Assignment, error) {
	out := make([]Assignment, len(gpus))
	for i := range out {
		out[i].Monitor = -1
	}
	var silent []error
	for k, m := range monitors {
		if m.Err != nil {
			silent = append(silent, m.Err)
			continue
		}
		i, err := assign(gpus, m, len(gpus) > 1 || len(monitors) > 1)
		if err != nil {
			return nil, err
		}
		if other := out[i].Monitor; other >= 0 {
			return nil, fmt.Errorf("%w: the benches at %s and %s both say that they measure %s: leave one out of "+
				"--monitor", ErrWrongGPU, monitors[other].Address, m.Address, gpus[i].UUID)
		}
		out[i].Monitor = k
	}
	if len(silent) == len(monitors) {
		return nil, errors.Join(silent...)
	}
	for i := range out {
		switch {
		case out[i].Monitor >= 0:
		case len(silent) == 0:
			return out, fmt.Errorf("%w: no bench measures %s (%s): add its monitor to --monitor, or leave the GPU out "+
				"of --gpus", ErrWrongGPU, gpus[i].UUID, gpus[i].Name)
		default:
			out[i].Missing = fmt.Errorf("no bench that answers measures this GPU: %w", errors.Join(silent...))
		}
	}
	return out, nil
}

// assign finds the GPU that a bench measures.
func assign(gpus []gpu.Info, m MonitorBench, mustSay bool) (int, error) {
	if m.Bench.GPU == "" && mustSay {
		return 0, checkGPU(&m.Bench, m.Address, gpu.Info{}, true)
	}
	var uuids []string
	for i, g := range gpus {
		if m.Bench.GPU == "" || measure.SameGPU(m.Bench.GPU, g.UUID) {
			return i, nil
		}
		uuids = append(uuids, g.UUID)
	}
	return 0, fmt.Errorf("%w: bench %s at %s measures %s, which is not among the GPUs to be measured (%s)",
		ErrWrongGPU, m.Bench.Name, m.Address, m.Bench.GPU, strings.Join(uuids, ", "))
}

// HiddenWords stands for words of a command line that are not kept.
const HiddenWords = "…"

// gitPatience is how long a repository may take to answer: a measurement does not
// wait for a slow disk.
const gitPatience = 3 * time.Second

// CollectProvenance returns the origin of a measurement: machine, working directory, and the
// commit checked out there. Unknown fields stay empty. version is wattmark's, command the
// command line to keep. It blocks for git, gitPatience at most.
func CollectProvenance(ctx context.Context, version string, command []string) *store.Provenance {
	p := &store.Provenance{OS: runtime.GOOS + "/" + runtime.GOARCH, Version: version, Command: command}
	p.Host, _ = os.Hostname()
	p.Directory, _ = os.Getwd()
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	if commit, err := askGit(ctx, "rev-parse", "--verify", "HEAD"); err == nil {
		changes, err := askGit(ctx, "status", "--porcelain", "--untracked-files=no")
		p.GitCommit, p.GitDirty = commit, err != nil || changes != ""
	}
	return p
}

// WithRevision returns a version with "+" and 12 digits of the Git revision if the build recorded one.
func WithRevision(version string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return version + "+" + s.Value[:12]
			}
		}
	}
	return version
}

// askGit asks the repository that the working directory lies in.
func askGit(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0") // looking must not write
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// CommandLine returns the command line of this process, also of a program that only loaded
// this library; nil on systems without /proc. Passwords in database addresses are
// concealed; redact keeps the program's name alone.
func CommandLine(redact bool) []string {
	raw, err := os.ReadFile("/proc/self/cmdline")
	if err != nil || len(raw) == 0 {
		return nil
	}
	var words []string
	for w := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte{0}), []byte{0}) {
		words = append(words, ConcealWord(string(w)))
	}
	if redact && len(words) > 1 {
		words = append(slices.Clip(words[:1]), HiddenWords)
	}
	return words
}

// ConcealWord takes the password out of a word that has a database's address, also behind
// an equals sign.
func ConcealWord(word string) string {
	if at := strings.Index(word, "postgres"); at >= 0 {
		return word[:at] + store.Conceal(word[at:])
	}
	return word
}
