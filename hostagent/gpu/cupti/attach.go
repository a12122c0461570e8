package cupti

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebitengine/purego"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/measure/marker"
)

// EnvLogs names the folder that takes the logs, one file a process. Without it
// the injection does nothing.
const EnvLogs = "WATTMARK_AUTO"

// LogSuffix ends the name of a log, which begins with the process's number.
const LogSuffix = ".launches"

// flushEvery is the interval, in ms, at which CUPTI delivers its buffers, where this version
// can: the kernels that a killed program loses.
const flushEvery = 500

// ErrFork: the recorder of a process lives on in a child without its threads.
var ErrFork = errors.New("not the process that the recorder was attached to")

// attached is the process's only recorder: CUPTI's callbacks have no room for one.
var attached struct {
	sync.Mutex
	pid  int
	rec  atomic.Pointer[recorder]
	lib  *library
	file io.Closer
	// subscriber is CUPTI's handle of the launch callback, 0 for none; unwatched is the reason
	// for which the program's own use of CUPTI is not noticed.
	subscriber uintptr
	unwatched  error
}

// ErrTaken: the program's own profiler recorded kernels before Attach, and its callbacks are unknown.
var ErrTaken = errors.New("the program's own profiler has CUPTI already: kernels are in its trace alone " +
	"(wattmark annotate relates it to the task) until it stops")

// Options are the optional services of CUPTI that Attach starts.
type Options struct {
	// OnLaunch is a C function, a CUpti_CallbackFunc, that is called before and after
	// the driver's calls that launch kernels and graphs; 0 for none.
	OnLaunch uintptr
	// Watch has Call called instead of these functions when the program itself calls them, and
	// replaces their addresses by ways into the functions themselves. nil where calls cannot
	// be watched.
	Watch func(*Calls) error
}

// Attach starts recording the kernels of this process into a log in the folder dir. Its
// error is also written into the log: the program must run all the same. A second call
// does nothing. It is safe for concurrent use.
func Attach(dir string, o Options) error {
	attached.Lock()
	defer attached.Unlock()
	if attached.file != nil {
		return nil
	}
	pid := os.Getpid()
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%d%s", pid, LogSuffix)), os.O_CREATE|os.O_EXCL|os.O_WRONLY,
		0o600)
	if err != nil {
		return err
	}
	attached.pid, attached.file = pid, f
	var version uint32
	var l layout
	lib, err := load()
	if err == nil {
		err = lib.check("cuptiGetVersion", lib.GetVersion(&version))
	}
	if err == nil {
		l, err = layoutOf(version)
	}
	log := launchlog.NewWriter(f, uint32(pid), version, time.Now().UnixNano())
	if err == nil {
		attached.lib = lib
		// Without libcuda's functions devices have no UUID.
		drv := new(driver)
		if h, err := dl.Open("libcuda.so.1"); err != nil || dl.Bind(h, drv) != nil {
			drv = nil
		}
		attached.rec.Store(newRecorder(lib, drv, l, log))
		err = enable(lib)
	}
	if err == nil || errors.Is(err, ErrTaken) && o.Watch != nil {
		attached.rec.Load().late.Store(err != nil)
		if err != nil {
			log.Trouble(err.Error())
		}
		err = share(lib, o, log, err != nil)
	}
	if err != nil {
		attached.rec.Store(nil)
		log.Trouble(err.Error())
		return errors.Join(err, log.End())
	}
	return log.Flush()
}

// callbacks are made once: there is room for few in a process.
var callbacks = sync.OnceValues(func() (requested, completed uintptr) {
	requested = purego.NewCallback(func(buffer, size, records uintptr) uintptr {
		if r := attached.rec.Load(); r != nil {
			r.requested(pointer[uintptr](buffer), pointer[uint64](size), pointer[uint64](records))
		}
		return 0
	})
	completed = purego.NewCallback(func(context, stream, buffer, size, valid uintptr) uintptr {
		if r := attached.rec.Load(); r != nil {
			r.completed(context, uint32(stream), buffer, uint64(size), uint64(valid))
		}
		return 0
	})
	return requested, completed
})

// notCompatible is CUPTI_ERROR_NOT_COMPATIBLE.
const notCompatible = 14

// enable registers the callbacks and enables the activity of concurrent kernels. ErrTaken
// where the program's own profiler records kernels already.
func enable(lib *library) error {
	// A profiler that registered before cuInit has enabled kernels already: CUPTI then
	// refuses the kind that excludes them.
	if lib.Disable != nil {
		switch lib.Enable(kindKernel) {
		case 0:
			_ = lib.Disable(kindKernel)
		case notCompatible:
			return ErrTaken
		}
	}
	requested, completed := callbacks()
	if err := lib.check("cuptiActivityRegisterCallbacks", lib.RegisterCallbacks(requested, completed)); err != nil {
		return err
	}
	if err := lib.check("cuptiActivityEnable", lib.Enable(kindConcurrentKernel)); err != nil {
		return fmt.Errorf("%w: does another profiler run (ncu, nsys, torch.profiler)?", err)
	}
	lib.period(flushEvery) // without it a killed program loses more
	return nil
}

// Write hands the process's log to f, which must be quick; nothing where none is
// being written.
func Write(f func(*launchlog.Writer)) {
	if r := attached.rec.Load(); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		f(r.log)
	}
}

// Detach drains CUPTI's buffers and completes the log. It must be called before the process
// ends. In a child that forked it is ErrFork: the child has no recorder of its own.
func Detach() error {
	attached.Lock()
	defer attached.Unlock()
	rec := attached.rec.Load()
	if rec == nil {
		return nil
	}
	if attached.pid != os.Getpid() {
		return ErrFork
	}
	flushed := rec.flush()
	rec.identify()
	return errors.Join(flushed, rec.end())
}

// The driver's calls that launch, in CUPTI's numbers of them: cuLaunchKernel,
// cuLaunchCooperativeKernel, cuGraphLaunch and cuLaunchKernelEx, each followed by
// its form for per-thread default streams (cupti_driver_cbid.h).
var launchCalls = []uint32{307, 442, 477, 478, 514, 515, 652, 653}

// domainDriver is CUPTI_CB_DOMAIN_DRIVER_API.
const domainDriver = 1

// subscribe has callback called around launches. A call that this CUPTI does not
// know yet cannot be made by the driver beside it either.
func subscribe(lib *library, callback uintptr) (subscriber uintptr, err error) {
	if lib.Subscribe == nil || lib.EnableCallback == nil {
		return 0, fmt.Errorf("%w: it lacks cuptiSubscribe", ErrVersion)
	}
	to := new(uintptr)
	if err := lib.check("cuptiSubscribe", lib.Subscribe(to, callback, 0)); err != nil {
		return 0, fmt.Errorf("%w: does another profiler run (ncu, nsys, torch.profiler)?", err)
	}
	if err := lib.check("cuptiEnableCallback", lib.EnableCallback(1, *to, domainDriver, launchCalls[0])); err != nil {
		return *to, err
	}
	for _, id := range launchCalls[1:] {
		_ = lib.EnableCallback(1, *to, domainDriver, id)
	}
	return *to, nil
}

// share has o.OnLaunch called around launches where that is wanted, and watches for the
// program's own use of CUPTI. Kernels are recorded also where either fails; the log has the
// reason. It is an error only where late recording needs the watch.
func share(lib *library, o Options, log *launchlog.Writer, late bool) error {
	if o.OnLaunch != 0 {
		subscriber, err := subscribe(lib, o.OnLaunch)
		if err != nil {
			log.Trouble(fmt.Sprintf("no kernel is bracketed: %v", err))
		}
		attached.subscriber = subscriber
	}
	if o.Watch == nil {
		return nil
	}
	calls := lib.calls
	if err := o.Watch(&calls); err != nil {
		attached.unwatched = fmt.Errorf("calls of CUPTI cannot be watched here: %w", err)
		if late {
			return attached.unwatched
		}
		return nil
	}
	lib.through(calls)
	return nil
}

// flush drains CUPTI's buffers, complete or not. A buffer that does not come back was lost to
// another user of CUPTI that replaced the callbacks unnoticed; the log has a note of it.
func (r *recorder) flush() error {
	if r.gone.Load() {
		return nil
	}
	err := r.lib.check("cuptiActivityFlushAll", r.lib.FlushAll(1))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.log.Trouble(err.Error())
	}
	if kept := len(r.pool.out()); err == nil && kept > 0 {
		trouble := fmt.Sprintf("%d of CUPTI's buffers never came back, so kernels are missing: another profiler took "+
			"CUPTI unseen", kept)
		if attached.unwatched != nil {
			trouble += fmt.Sprintf(" (%v)", attached.unwatched)
		}
		r.log.Trouble(trouble)
	}
	return err
}

// EnvSelection holds a Selection as JSON; without it no kernel is bracketed.
const EnvSelection = "WATTMARK_SELECTION"

// Selection selects the launches that get markers of their own, and the markers.
type Selection struct {
	// Kernel is a regular expression (RE2) that a part of the kernel's symbol, as the
	// compiler mangled it, must match. A CUDA graph's launch is called cuGraphLaunch.
	Kernel string `json:"kernel"`
	// Every is the distance of bracketed launches among those of one name, from the
	// first on.
	Every int `json:"every"`
	// AtMost is how many launches of a process are bracketed.
	AtMost int         `json:"at_most"`
	Marker marker.Spec `json:"marker"`
}

// ErrSelection is wrapped by errors about a Selection that cannot be.
var ErrSelection = errors.New("kernels cannot be selected so")

// Validate checks a selection and returns its expression.
func (s *Selection) Validate() (*regexp.Regexp, error) {
	re, err := regexp.Compile(s.Kernel)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSelection, err)
	case s.Every < 1:
		return nil, fmt.Errorf("%w: every %d launches: want 1 or more", ErrSelection, s.Every)
	case s.AtMost < 1:
		return nil, fmt.Errorf("%w: at most %d launches: want 1 or more", ErrSelection, s.AtMost)
	}
	return re, s.Marker.Validate()
}

// ParseSelection decodes and validates the JSON of EnvSelection. Errors wrap ErrSelection.
func ParseSelection(text string) (Selection, *regexp.Regexp, error) {
	var s Selection
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, nil, fmt.Errorf("%w: %s: %w", ErrSelection, EnvSelection, err)
	}
	re, err := s.Validate()
	return s, re, err
}
