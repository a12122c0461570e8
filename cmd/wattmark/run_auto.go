package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"wattmark/hostagent"
	"wattmark/hostagent/cupti"
	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// injectionEnv makes libcuda load a library into a program that it initialises.
const injectionEnv = "CUDA_INJECTION64_PATH"

// autoRun records the kernels of a program from within, by the library that
// libcuda loads into it.
type autoRun struct {
	library, logs string
	selection     string // JSON for the program; empty for none
}

// newAuto finds the library and makes a folder for the logs.
func newAuto(library string) (*autoRun, error) {
	if library == "" {
		library = findLibrary()
	}
	abs, err := filepath.Abs(library)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if library == "" || err != nil {
		return nil, withCode(exitUsage, errors.New("--auto: libwattmark.so is not beside this program: build it (go build -buildmode=c-shared -o libwattmark.so ./cmd/libwattmark) and name it with --library"))
	}
	logs, err := store.TempDir()
	if err != nil {
		return nil, err
	}
	return &autoRun{library: abs, logs: logs}, nil
}

// findLibrary looks where an installation has it; empty where there is none.
func findLibrary() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	dir := filepath.Dir(exe)
	for _, path := range []string{"libwattmark.so", "../lib/libwattmark.so", "../lib64/libwattmark.so"} {
		if path = filepath.Join(dir, path); isFile(path) {
			return path
		}
	}
	return ""
}

func isFile(path string) bool {
	i, err := os.Stat(path)
	return err == nil && i.Mode().IsRegular()
}

// env is what the program is started with beside our own environment.
func (r *autoRun) env() []string {
	env := []string{injectionEnv + "=" + r.library, cupti.EnvLogs + "=" + r.logs}
	if r.selection != "" {
		env = append(env, cupti.EnvSelection+"="+r.selection)
	}
	return env
}

// close removes the logs: what they hold is in the database.
func (r *autoRun) close() error { return os.RemoveAll(r.logs) }

// store brings the logs into the database and shares the task's energy among the
// kernels. Where that cannot be the kernels are there all the same, and the error
// says why there are no joules.
func (r *autoRun) store(ctx context.Context, db *store.DB, id store.TaskID, gpu hostagent.Info) error {
	logs, err := filepath.Glob(filepath.Join(r.logs, "*"+cupti.LogSuffix))
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return fmt.Errorf("no kernels were recorded: no process of the program loaded %s. Does it use CUDA, and can the library be loaded there (ldd)?", r.library)
	}
	if _, err := measurement.StoreLaunches(ctx, db, id, logs, gpu); err != nil {
		return err
	}
	_, err = measurement.Attribute(ctx, db, id)
	return err
}

// measureAuto measures a program whose kernels are recorded.
func (a *app) measureAuto(ctx context.Context, f runFlags, args []string) (err error) {
	auto, err := newAuto(f.library)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, auto.close()) }()
	gpu, err := findGPU(f.gpu)
	if err != nil {
		return err
	}
	defer gpu.Close()
	cfg, done, err := a.measureConfig(ctx, f, gpu, baseName(args[0]))
	if err != nil {
		return err
	}
	defer done()
	cfg.Records = true
	if err := auto.selects(ctx, f.selectFlags, &cfg); err != nil {
		return err
	}
	id, err := a.measure(ctx, cfg, a.commandWork(args, auto.env()...))
	if id == 0 {
		return err
	}
	db := cfg.DB.(*store.DB)
	// What was recorded is kept also when the measurement was cancelled.
	shareErr := auto.store(context.WithoutCancel(ctx), db, id, gpu.Info())
	if errors.Is(shareErr, measurement.ErrNoShares) {
		shareErr = nil // the report says it
	}
	var r *report
	err = errors.Join(err, a.showTask(ctx, db, id, func(x *report) { r = x; shareErr = errors.Join(shareErr, x.addKernelsOf(ctx, db, id)) }))
	if r != nil && !a.json {
		a.renderKernels(r)
	}
	return errors.Join(err, shareErr)
}

// autoCheck refuses --auto without a program, and a program that is recorded
// already.
func (f runFlags) autoCheck(args []string) error {
	switch {
	case !f.auto && f.kernel != "":
		return withCode(exitUsage, errors.New("--kernel goes with --auto"))
	case !f.auto && f.library != "":
		return withCode(exitUsage, errors.New("--library goes with --auto"))
	case !f.auto:
		return nil
	case f.kernel == "" && (f.every != 1 || f.atMost != defaultAtMost):
		return withCode(exitUsage, errors.New("--every and --at-most go with --kernel"))
	case len(args) == 0:
		return withCode(exitUsage, errors.New("--auto records the kernels of a program: name it after --"))
	case os.Getenv(injectionEnv) != "":
		return withCode(exitUsage, fmt.Errorf("%s is set already: two profilers exclude each other", injectionEnv))
	}
	return nil
}
