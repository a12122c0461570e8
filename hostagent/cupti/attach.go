package cupti

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebitengine/purego"

	"wattmark/hostagent/internal/dl"
	"wattmark/hostagent/launchlog"
)

// EnvLogs names the folder that takes the logs, one file a process. Without it
// the injection does nothing.
const EnvLogs = "WATTMARK_AUTO"

// LogSuffix ends the name of a log, which begins with the process's number.
const LogSuffix = ".launches"

// flushEvery is how often CUPTI hands over what it has, in ms, where it can: what
// a program loses that is killed.
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
	// subscriber is CUPTI's handle of the launch callback, 0 for none; unwatched says why
	// the program's own use of CUPTI goes unseen.
	subscriber uintptr
	unwatched  error
}

// ErrTaken: the program's own profiler recorded kernels before Attach.
var ErrTaken = errors.New("the program's own profiler has CUPTI already, which serves one")

// Options are what else is wanted of CUPTI.
type Options struct {
	// OnLaunch is a C function, a CUpti_CallbackFunc, that is called before and after
	// the driver's calls that launch kernels and graphs; 0 for none.
	OnLaunch uintptr
	// Watch has Yield, Unsubscribe and Flushed called when the program itself makes one of
	// the calls for the first time, before it goes on to CUPTI. nil where calls cannot be
	// watched.
	Watch func(Calls) error
}

// Attach begins to record the kernels of this process into the folder dir. What
// keeps it from that is returned and written into the log: the program must run on
// all the same. A second call does nothing.
func Attach(dir string, o Options) error {
	attached.Lock()
	defer attached.Unlock()
	if attached.file != nil {
		return nil
	}
	pid := os.Getpid()
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%d%s", pid, LogSuffix)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	attached.pid, attached.file = pid, f
	lib, version, l, err := open()
	log := launchlog.NewWriter(f, uint32(pid), version, time.Now().UnixNano())
	if err == nil {
		attached.lib = lib
		attached.rec.Store(newRecorder(lib, openDriver(), l, log))
		err = enable(lib)
	}
	if err == nil {
		share(lib, o, log)
	}
	if err != nil {
		attached.rec.Store(nil)
		log.Trouble(err.Error())
		return errors.Join(err, log.End())
	}
	return log.Flush()
}

// open finds CUPTI and asks which it is.
func open() (lib *library, version uint32, l layout, err error) {
	if lib, err = load(); err != nil {
		return nil, 0, l, err
	}
	if err = lib.say("cuptiGetVersion", lib.GetVersion(&version)); err == nil {
		l, err = layoutOf(version)
	}
	return lib, version, l, err
}

func openDriver() *driver {
	h, err := dl.Open("libcuda.so.1")
	if err != nil {
		return nil
	}
	var d driver
	if dl.Bind(h, &d) != nil {
		return nil
	}
	return &d
}

// callbacks are made once: there is room for few in a process.
var callbacks = sync.OnceValues(func() (requested, completed uintptr) {
	requested = purego.NewCallback(func(buffer, size, records uintptr) uintptr {
		if r := attached.rec.Load(); r != nil {
			r.requested(pointer[uintptr](buffer), pointer[uint64](size), pointer[uint64](records))
		}
		return 0
	})
	completed = purego.NewCallback(func(context, stream, buffer, _, valid uintptr) uintptr {
		if r := attached.rec.Load(); r != nil {
			r.completed(context, uint32(stream), buffer, valid)
		}
		return 0
	})
	return requested, completed
})

// notCompatible is CUPTI_ERROR_NOT_COMPATIBLE.
const notCompatible = 14

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
	if err := lib.say("cuptiActivityRegisterCallbacks", lib.RegisterCallbacks(requested, completed)); err != nil {
		return err
	}
	if err := lib.say("cuptiActivityEnable", lib.Enable(kindConcurrentKernel)); err != nil {
		return fmt.Errorf("%w: does another profiler run (ncu, nsys, torch.profiler)?", err)
	}
	if lib.FlushPeriod != nil {
		_ = lib.FlushPeriod(flushEvery) // without it a killed program loses more
	}
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

// Detach takes what CUPTI still has and makes the log whole. It must be called
// before the process ends, and not in a child that forked: that one has no
// recorder of its own, and its call is refused.
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
