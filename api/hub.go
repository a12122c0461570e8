package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"wattmark/api/wattmarkv1"
	"wattmark/store"
)

// hub looks at the database for all who watch, once for all of them, and only
// while there are any.
type hub struct {
	db      Database
	options Options
	closed  context.Context
	close   context.CancelFunc

	mu       sync.Mutex
	watchers map[*watcher]bool
	stop     context.CancelFunc // of the run that goes on
	seen     *seen              // what the run saw last
}

// watcher is one who watches: what has happened that it was not told yet. However
// slow it is, there is one entry a task.
type watcher struct {
	wake     chan struct{}
	mu       sync.Mutex
	pending  map[store.TaskID]wattmarkv1.TaskEvent
	waypoint waypoint // after all that is pending
	err      error
}

func (h *hub) begin(db Database, o Options) {
	h.db, h.options, h.watchers = db, o, map[*watcher]bool{}
	h.closed, h.close = context.WithCancel(context.Background())
}

// errClosing ends watches when the server stops.
var errClosing = errors.New("the server is stopping")

// join adds a watcher and returns the place from which it is told on. since is
// where it was when it watched last; nil for never. anew is true where what
// happened since cannot be told task by task.
func (h *hub) join(ctx context.Context, since *waypoint) (w *watcher, at waypoint, anew bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Err() != nil {
		return nil, at, false, errClosing
	}
	if h.stop == nil {
		if h.seen, err = look(ctx, h.db); err != nil {
			return nil, at, false, err
		}
	}
	at = h.seen.waypoint()
	w = &watcher{wake: make(chan struct{}, 1), pending: map[store.TaskID]wattmarkv1.TaskEvent{}, waypoint: at}
	if since != nil {
		anew = h.seen.since(since, w.pending)
	}
	if len(w.pending) > 0 {
		w.signal()
	}
	h.watchers[w] = true
	if h.stop == nil {
		var run context.Context
		run, h.stop = context.WithCancel(h.closed)
		go h.run(run, h.seen)
	}
	return w, at, anew, nil
}

// leave removes a watcher; the last one stops the run.
func (h *hub) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
	if len(h.watchers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// run looks at the database until nobody watches any more.
func (h *hub) run(ctx context.Context, s *seen) {
	err := h.poll(ctx, s)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Err() != nil {
		err = errClosing
	} else if ctx.Err() != nil {
		return // nobody watches, or another run has begun
	}
	for w := range h.watchers {
		w.end(err)
	}
	clear(h.watchers)
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *hub) poll(ctx context.Context, s *seen) error {
	watch, err := h.db.NewWatch(ctx)
	if err != nil {
		return err
	}
	defer watch.Close()
	tick := time.NewTicker(h.options.Poll)
	defer tick.Stop()
	var swept time.Time    // when all tasks were gone through last
	var took time.Duration // to do so
	dirty := false         // something was written since
	for {
		changed, err := watch.Changed(ctx)
		if err != nil {
			return err
		}
		dirty = dirty || changed
		// New tasks and those that run are looked at every time. All of them, for what was
		// deleted or calculated anew, take as long as there are many: a twentieth of
		// the time at most.
		sweep := dirty && time.Since(swept) >= 20*took
		start := time.Now()
		if changed || sweep {
			if err := h.step(ctx, s, sweep); err != nil {
				return err
			}
		}
		if sweep {
			swept, took, dirty = time.Now(), time.Since(start), false
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// step looks once more and passes on what changed.
func (h *hub) step(ctx context.Context, s *seen, all bool) error {
	// The run alone changes what it saw, so reading it needs no lock here.
	marks, asked, err := s.look(ctx, h.db, all)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	events := s.take(marks, asked, all)
	if len(events) == 0 || ctx.Err() != nil {
		return nil
	}
	at := s.waypoint()
	for w := range h.watchers {
		w.tell(events, at)
	}
	return nil
}

// tell notes what happened.
func (w *watcher) tell(events map[store.TaskID]wattmarkv1.TaskEvent, at waypoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, event := range events {
		old, told := w.pending[id]
		if told && old == wattmarkv1.TaskEvent_TASK_EVENT_ADDED && event == wattmarkv1.TaskEvent_TASK_EVENT_CHANGED {
			continue // it is still new to this one
		}
		w.pending[id] = event
	}
	w.waypoint = at
	w.signal()
}

func (w *watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what is pending, and the place behind it.
func (w *watcher) take() (map[store.TaskID]wattmarkv1.TaskEvent, waypoint, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending
	w.pending = map[store.TaskID]wattmarkv1.TaskEvent{}
	return p, w.waypoint, w.err
}
