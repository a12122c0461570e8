package cuda

import (
	"runtime"
	"sync"
)

// worker runs functions one after another on an OS thread of its own: a CUDA
// context belongs to the thread on which it was made current.
type worker struct {
	jobs chan func()
	stop sync.Once
	done chan struct{}
}

func newWorker() *worker {
	w := &worker{jobs: make(chan func()), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *worker) run() {
	// The thread is not unlocked: it ends with the goroutine, and takes what the
	// driver hung on it along.
	runtime.LockOSThread()
	defer close(w.done)
	for job := range w.jobs {
		job()
	}
}

// do runs fn on the worker's thread and returns when it has. What can take long
// watches its own context.
func (w *worker) do(fn func() error) error {
	if w == nil {
		return ErrNotOpen
	}
	result := make(chan error, 1)
	w.jobs <- func() { result <- fn() }
	return <-result
}

// close ends the thread. It is safe to call twice; do must not follow.
func (w *worker) close() {
	w.stop.Do(func() { close(w.jobs) })
	<-w.done
}
