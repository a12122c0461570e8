package cupti

import (
	"errors"
	"fmt"
	"time"

	"wattmark/hostagent/launchlog"
)

// Calls are the addresses of the functions of CUPTI by which a program's own profiler
// shows itself; 0 for one that is not to be watched.
type Calls struct {
	Register  uintptr // cuptiActivityRegisterCallbacks: it takes the buffers
	Clock     uintptr // cuptiActivityRegisterTimestampCallback: it sets the clock of the records
	Subscribe uintptr // cuptiSubscribe: it takes the callbacks around launches
	Flush     uintptr // cuptiActivityFlushAll: it had registered before Attach
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
	if err := lib.say("cuptiSubscribe", lib.Subscribe(to, callback, 0)); err != nil {
		return 0, fmt.Errorf("%w: does another profiler run (ncu, nsys, torch.profiler)?", err)
	}
	if err := lib.say("cuptiEnableCallback", lib.EnableCallback(1, *to, domainDriver, launchCalls[0])); err != nil {
		return *to, err
	}
	for _, id := range launchCalls[1:] {
		_ = lib.EnableCallback(1, *to, domainDriver, id)
	}
	return *to, nil
}

// share subscribes to launches where that is wanted, and watches for the program's own
// use of CUPTI. Kernels are recorded also where either fails; the log has the reason.
func share(lib *library, o Options, log *launchlog.Writer) {
	watched := lib.calls
	watched.Subscribe = 0
	if o.OnLaunch != 0 {
		subscriber, err := subscribe(lib, o.OnLaunch)
		if err != nil {
			log.Trouble(fmt.Sprintf("no kernel is bracketed: %v", err))
		}
		if attached.subscriber = subscriber; subscriber != 0 {
			watched.Subscribe = lib.calls.Subscribe
		}
	}
	if o.Watch == nil {
		return
	}
	if err := o.Watch(watched); err != nil {
		attached.unwatched = fmt.Errorf("calls of CUPTI cannot be watched here: %w", err)
	}
}

// Yield gives CUPTI's buffers to the program's own profiler: it takes what CUPTI holds,
// disables what Attach enabled, and notes the time in the log. It must be called before
// that profiler registers its callbacks or its clock, in the process that called Attach. Kernels that
// run later are not recorded. It blocks until CUPTI has handed over its buffers.
func Yield() {
	attached.Lock()
	defer attached.Unlock()
	r := attached.rec.Load()
	if r == nil || r.yielded.Swap(true) {
		return
	}
	trouble := []error{r.lib.say("cuptiActivityFlushAll", r.lib.FlushAll(1))}
	if r.lib.Disable != nil {
		trouble = append(trouble, r.lib.say("cuptiActivityDisable", r.lib.Disable(kindConcurrentKernel)))
	}
	if r.lib.FlushPeriod != nil {
		_ = r.lib.FlushPeriod(0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Yielded(time.Now().UnixNano())
	if err := errors.Join(trouble...); err != nil {
		r.log.Trouble(err.Error())
	}
	_ = r.log.Flush() // an error stays, and ends the log
}

// Unsubscribe gives CUPTI's subscription to the program, which is about to subscribe:
// no further launch is bracketed.
func Unsubscribe() {
	attached.Lock()
	defer attached.Unlock()
	r := attached.rec.Load()
	if r == nil || attached.subscriber == 0 || r.lib.Unsubscribe == nil {
		return
	}
	err := r.lib.say("cuptiUnsubscribe", r.lib.Unsubscribe(attached.subscriber))
	attached.subscriber = 0
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Trouble("no further kernels are bracketed: the program itself subscribed to CUPTI's callbacks")
	if err != nil {
		r.log.Trouble(err.Error())
	}
}

// Flushed notes that the program flushes CUPTI's buffers without having registered
// callbacks since Attach: it had done so before, and Attach replaced them.
func Flushed() {
	Write(func(w *launchlog.Writer) {
		w.Trouble("the program's own profiler registered with CUPTI before wattmark, which replaced it: that profiler's own record lacks the kernels")
	})
}

// flush takes what CUPTI holds, complete or not. Buffers that do not come back are in the
// hands of another user of CUPTI that replaced the callbacks unseen.
func (r *recorder) flush() error {
	if r.yielded.Load() {
		return nil
	}
	err := r.lib.say("cuptiActivityFlushAll", r.lib.FlushAll(1))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.log.Trouble(err.Error())
	}
	if kept := r.pool.lent(); err == nil && kept > 0 {
		trouble := fmt.Sprintf("%d of CUPTI's buffers never came back, so kernels are missing: another profiler took CUPTI unseen", kept)
		if attached.unwatched != nil {
			trouble += fmt.Sprintf(" (%v)", attached.unwatched)
		}
		r.log.Trouble(trouble)
	}
	return err
}
