package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// autoRun records the kernels of a program from inside its processes: CUDA loads the
// library that the environment variable cli.InjectionEnv names, and the library writes a
// launch log per process into the folder logs.
type autoRun struct {
	library, logs string
	// selection is a cupti.Selection in JSON; empty to play no markers around launches.
	selection string
}

// autoLibrary returns the path of the library, beside the program where none is named, and
// fails with ExitUsage where it is missing. A simulated GPU needs none: it writes the launch log
// itself.
func (f *RunFlags) autoLibrary() (string, error) {
	library := cmp.Or(f.library, FindLibrary())
	abs, err := filepath.Abs(library)
	if err == nil {
		_, err = os.Stat(abs)
	}
	switch {
	case library == "" && f.kernel == "" && strings.HasPrefix(f.GPU, sim.Prefix):
		return "", nil
	case library == "" || err != nil:
		return "", cli.Usagef("--auto: libwattmark.so is not beside this program: " +
			"build it (go build -buildmode=c-shared -o libwattmark.so ./cmd/libwattmark) and name it with --library")
	}
	return abs, nil
}

// FindLibrary returns the path of libwattmark.so beside this program or in ../lib, as
// installations have it, also in a folder of ../lib by architecture; empty where it is in none.
func FindLibrary() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Dir(exe)
	paths := []string{"libwattmark.so", "../lib/libwattmark.so", "../lib64/libwattmark.so"}
	byArch, _ := os.ReadDir(filepath.Join(dir, "../lib"))
	for _, d := range byArch {
		paths = append(paths, "../lib/"+d.Name()+"/libwattmark.so")
	}
	for _, path := range paths {
		if path = filepath.Join(dir, path); IsFile(path) {
			return path
		}
	}
	return ""
}

// IsFile reports whether path is a regular file, after symbolic links.
func IsFile(path string) bool {
	i, err := os.Stat(path)
	return err == nil && i.Mode().IsRegular()
}

// store reads the logs into the database and divides the task's energy among the kernels.
// The kernels stay stored where the division fails. It fails where no process wrote a log.
func (r *autoRun) store(ctx context.Context, db *store.DB, id store.TaskID, card gpu.Info) error {
	logs := r.written()
	if len(logs) == 0 {
		hint := ""
		if card.Simulated {
			hint = " On the simulated GPU itself it ran no built-in benchmark (P_compute_test in C, wattmark.benchmark in " +
				"Python)"
		}
		return fmt.Errorf("no kernels were recorded: no process of the program loaded %s. Does it use CUDA, and can "+
			"the library be loaded there (ldd)?%s", cmp.Or(r.library, "libwattmark.so"), hint)
	}
	_, err := measurement.StoreLaunches(ctx, db, id, logs, card)
	if err == nil {
		_, err = measurement.Attribute(ctx, db, id)
	}
	if err == nil {
		err = measurement.StoreRanges(ctx, db, id, logs)
	}
	if errors.Is(err, measurement.ErrNoShares) {
		return nil // the report has the reason; the exit code stays 0
	}
	return err
}

// written returns the logs that processes have written.
func (r *autoRun) written() []string {
	logs, _ := filepath.Glob(filepath.Join(r.logs, "*"+cupti.LogSuffix))
	return logs
}

// recording returns how the kernels of a program are recorded; nil without --auto. The caller removes the folder of
// the logs.
func (f *RunFlags) recording() (*autoRun, error) {
	if !f.auto {
		return nil, nil
	}
	library, err := f.autoLibrary()
	if err != nil {
		return nil, err
	}
	logs, err := store.TempDir()
	return &autoRun{library: library, logs: logs}, err
}

// work returns the work of a program whose processes record their kernels, and sets cfg for it.
func (r *autoRun) work(ctx context.Context, a *cli.App, f *RunFlags, args []string, cfg *measurement.Config,
) (measurement.Work, error) {
	cfg.Records = true
	if err := r.selects(ctx, f.selectFlags, cfg); err != nil {
		return nil, err
	}
	env := []string{cupti.EnvLogs + "=" + r.logs}
	if r.library != "" {
		env = append(env, cli.InjectionEnv+"="+r.library)
		const nvtxEnv = "NVTX_INJECTION64_PATH" // the library that a program's first call of NVTX loads
		if os.Getenv(nvtxEnv) == "" {           // else ranges are another tool's
			env = append(env, nvtxEnv+"="+r.library)
		}
		const pythonEnv = "WATTMARK_LIBRARY" // the library that the Python package loads
		if os.Getenv(pythonEnv) == "" {
			env = append(env, pythonEnv+"="+r.library)
		}
	}
	if cfg.Device.Info().Simulated {
		env = append(env, "WATTMARK_GPU="+f.GPU) // for the program's own launches there
	}
	if r.selection != "" {
		env = append(env, cupti.EnvSelection+"="+r.selection)
	}
	return session.CommandWork(a, args, env...), nil
}

// showKernels prints a task with the energy of its kernels.
func showKernels(ctx context.Context, a *cli.App, db *store.DB, id store.TaskID) error {
	var r *report.Report
	var more error
	err := report.ShowTask(a, ctx, db, id, func(x *report.Report) { r, more = x, x.AddKernels(ctx, db) })
	if r != nil && !a.JSON {
		report.RenderKernels(a, r)
	}
	if r != nil && r.Kernels != nil && !a.JSON {
		report.RenderAnswer(a.Out, r)
	}
	return errors.Join(err, more)
}

// autoCheck fails with ExitUsage for --auto without a program or library, and where the environment
// already injects a profiler: CUDA loads only one.
func (f RunFlags) autoCheck(args []string) error {
	switch {
	case !f.auto:
		return nil
	case len(args) == 0 && len(f.with) == 0:
		return cli.Usagef("--auto records the kernels of a program: name it after --")
	case os.Getenv(cli.InjectionEnv) != "":
		return cli.Usagef("%s is set already: two profilers exclude each other", cli.InjectionEnv)
	}
	_, err := f.autoLibrary()
	return err
}

// selectFlags choose the launches that get markers of their own: kernels by a regular
// expression, every n-th launch, at most so many in a process.
type selectFlags struct {
	kernel        string
	every, atMost int
}

// defaultAtMost bounds the run time: each bracketed launch costs two markers, so a program
// of a million launches would take days.
const defaultAtMost = 100

// selects makes the program bracket the launches that f names, with a marker whose chips
// fit the sample rate of the monitor's bench. It does nothing without --kernel. The tag is
// random, so that markers of other programs are not taken for ours.
func (r *autoRun) selects(ctx context.Context, f selectFlags, cfg *measurement.Config) error {
	if f.kernel == "" {
		return nil
	}
	b, err := cfg.Monitor.GetBench(ctx)
	if err != nil {
		return err
	}
	if len(b.Setup.Channels) == 0 {
		return fmt.Errorf("%w: %s", measurement.ErrBench, b.Trouble)
	}
	// Validate here: inside the program an error would appear only in its log.
	s := cupti.Selection{
		Kernel: f.kernel, Every: f.every, AtMost: f.atMost, Marker: marker.ProfileFor(b.Setup, rand.Uint32()),
	}
	if _, err := s.Validate(); err != nil {
		return cli.Usagef("--kernel, --one-in, --at-most: %w", err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r.selection, cfg.Marker, cfg.Played = string(text), &s.Marker, r.played
	return nil
}

// played returns the markers that the program's processes played, from all logs. A damaged
// log yields the markers before the damage; the damage itself is reported when the kernels
// are stored.
func (r *autoRun) played() (out []gpu.Played, err error) {
	for _, path := range r.written() {
		list, err := cli.ReadFile(path, playedIn)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// playedIn reads one log to its end, where Process.Markers is complete, and returns them.
// A file that is no log yields no markers.
func playedIn(f io.Reader, path string) (out []gpu.Played, err error) {
	l, err := launchlog.Open(f)
	if errors.Is(err, launchlog.ErrNotLog) {
		return nil, nil
	}
	for k := new(launchlog.Kernel); err == nil; {
		err = l.Next(k)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, launchlog.ErrCorrupt) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, m := range l.Process.Markers {
		p := gpu.Played{Kind: m.Kind}
		for i, e := range m.Edges {
			p.Edges = append(p.Edges, gpu.PlayedEdge{Chip: m.First + i, At: time.Unix(0, e)})
		}
		out = append(out, p)
	}
	return out, nil
}
