package api

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/store"
)

// maxSent is how many tasks are read at once for a watcher.
const maxSent = 256

// WatchTasks streams new tasks and their changes, until it is cancelled.
func (s *Service) WatchTasks(req *pb.WatchTasksRequest, stream pb.TaskService_WatchTasksServer) error {
	f, err := filter(&pb.ListTasksRequest{
		User: req.GetUser(), Name: req.GetName(), Job: req.GetJob(), Tags: req.GetTags(),
		WithoutTags: req.GetWithoutTags(),
	})
	if err != nil {
		return err
	}
	since, err := parseResume(req.GetResumeToken())
	if err != nil {
		return err
	}
	ctx := stream.Context()
	w, at, anew, err := s.hub.join(ctx, since)
	if err != nil {
		return toStatus("watch tasks", err)
	}
	defer func() { // the last one stops the run
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		delete(s.hub.watchers, w)
		if len(s.hub.watchers) == 0 {
			s.hub.halt()
		}
	}()
	if err := begin(stream, since, &at, anew); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return toStatus("watch tasks", ctx.Err())
		case <-s.hub.closed.Done():
			return toStatus("watch tasks", errClosing)
		case <-w.wake:
		}
		s.hub.mu.Lock()
		events, at, err := w.pending, w.waypoint, w.err
		w.pending = map[store.TaskID]pb.TaskEvent{}
		s.hub.mu.Unlock()
		if err != nil {
			return toStatus("watch tasks", err)
		}
		if err := s.send(ctx, stream, f, events, at.token()); err != nil {
			return err
		}
	}
}

// begin sends that the watch has begun, and whether changes were missed.
func begin(stream pb.TaskService_WatchTasksServer, since, at *waypoint, anew bool) error {
	token := at.token()
	if since != nil { // until the changes since are sent, that is its place
		token = since.token()
	}
	err := stream.Send(&pb.WatchTasksResponse{Event: pb.TaskEvent_TASK_EVENT_WATCHING, ResumeToken: token})
	if err == nil && anew {
		err = stream.Send(&pb.WatchTasksResponse{Event: pb.TaskEvent_TASK_EVENT_LIST_ANEW, ResumeToken: at.token()})
	}
	return err
}

// send sends events, oldest task first. The token goes with the last of them: a
// client that is cut off before gets all of them again.
func (s *Service) send(ctx context.Context, stream pb.TaskService_WatchTasksServer, f store.Filter,
	events map[store.TaskID]pb.TaskEvent, token string,
) error {
	// One message is held back, so that the token can go with the last, which is known only behind it.
	var held *pb.WatchTasksResponse
	send := func(next *pb.WatchTasksResponse) error {
		last := held
		held = next
		if last == nil {
			return nil
		}
		return stream.Send(last)
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(events)), maxSent) {
		tasks, err := s.db.Selected(ctx, f, ids)
		if err != nil {
			return toStatus("watch tasks", err)
		}
		there := make(map[store.TaskID]*store.Brief, len(tasks))
		for i := range tasks {
			there[tasks[i].ID] = &tasks[i]
		}
		for _, id := range ids {
			m := &pb.WatchTasksResponse{Event: events[id]}
			switch t := there[id]; {
			case m.Event == pb.TaskEvent_TASK_EVENT_DELETED:
				m.Task = &pb.Task{TaskId: int64(id)}
			case t == nil:
				continue // not selected, or deleted: that event is next
			default:
				m.Task = taskMessage(t)
			}
			if err := send(m); err != nil {
				return err
			}
		}
	}
	if held == nil {
		return nil
	}
	held.ResumeToken = token
	return stream.Send(held)
}

// hub looks at the database for all who watch, once for all of them, and only
// while there are any.
type hub struct {
	db      Database
	options Options
	closed  context.Context
	close   context.CancelFunc

	mu       sync.Mutex // also of what the watchers hold
	watchers map[*watcher]bool
	stop     context.CancelFunc // of the run that goes on
	seen     *seen              // the state that the run saw last
}

// watcher is one watch: the events that are not sent yet. However
// slow it is, there is one entry a task.
type watcher struct {
	wake     chan struct{}
	pending  map[store.TaskID]pb.TaskEvent
	waypoint waypoint // after all that is pending
	err      error    // ends the watch; its pending events are dropped
}

// errClosing ends watches when the server stops.
var errClosing = errors.New("the server is stopping")

// join adds a watcher and returns the place from which it goes on. since is
// its last place; nil for none. anew is true where the changes since are not
// known task by task.
func (h *hub) join(ctx context.Context, since *waypoint) (w *watcher, at waypoint, anew bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Err() != nil {
		return nil, at, false, errClosing
	}
	if h.stop == nil {
		h.seen = &seen{marks: map[store.TaskID]uint64{}, running: map[store.TaskID]bool{}}
		marks, _, err := h.seen.look(ctx, h.db, true)
		if err != nil {
			return nil, at, false, err
		}
		h.seen.take(marks, nil, true)
	}
	at = h.seen.waypoint()
	w = &watcher{wake: make(chan struct{}, 1), pending: map[store.TaskID]pb.TaskEvent{}, waypoint: at}
	if since != nil {
		anew = h.seen.since(since, w.pending)
	}
	if len(w.pending) > 0 {
		backoff.Nudge(w.wake)
	}
	h.watchers[w] = true
	if h.stop == nil {
		var run context.Context
		run, h.stop = context.WithCancel(h.closed)
		go h.run(run, h.seen)
	}
	return w, at, anew, nil
}

// halt ends the run that goes on, if one does. The lock is held.
func (h *hub) halt() {
	if h.stop != nil {
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
		w.err = err
		backoff.Nudge(w.wake)
	}
	clear(h.watchers)
	h.halt()
}

// poll compares the database with s every Options.Poll until ctx ends or the database
// fails. Changes go to all watchers.
func (h *hub) poll(ctx context.Context, s *seen) error {
	watch, err := h.db.NewWatch(ctx)
	if err != nil {
		return err
	}
	defer watch.Close()
	var swept time.Time    // when all tasks were gone through last
	var took time.Duration // to do so
	dirty := false         // something was written since
	for range backoff.Rounds(ctx.Done(), h.options.Poll) {
		changed, err := watch.Changed(ctx)
		if err != nil {
			return err
		}
		dirty = dirty || changed
		// New tasks and those that run are looked at every time. All of them, for tasks
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
	}
	return ctx.Err()
}

// step looks once more and passes the changes on.
func (h *hub) step(ctx context.Context, s *seen, all bool) error {
	// The run alone changes its state, so reading it needs no lock here.
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
		for id, event := range events {
			// A task that was added and is not sent yet stays new to this one.
			if w.pending[id] != pb.TaskEvent_TASK_EVENT_ADDED || event != pb.TaskEvent_TASK_EVENT_CHANGED {
				w.pending[id] = event
			}
		}
		w.waypoint = at
		backoff.Nudge(w.wake)
	}
	return nil
}

// seen is the tasks as they stood at a look.
type seen struct {
	marks   map[store.TaskID]uint64
	running map[store.TaskID]bool
	last    store.TaskID // the greatest id that was ever seen
	digest  uint64       // sum over all marks, so that one task's part can be taken out
}

// look reads the marks of all tasks, or only of new ones and of those that ran.
func (s *seen) look(ctx context.Context, db Database, all bool) (marks []store.Mark, asked []store.TaskID, err error) {
	from := s.last + 1
	if all {
		from = 1
	} else {
		asked = slices.Sorted(maps.Keys(s.running))
	}
	marks, err = db.Marks(ctx, from, asked)
	return marks, asked, err
}

// take takes marks over and returns the events. Those of asked, or all known
// ones, that are not among the marks are gone.
func (s *seen) take(marks []store.Mark, asked []store.TaskID, all bool) map[store.TaskID]pb.TaskEvent {
	events := map[store.TaskID]pb.TaskEvent{}
	there := make(map[store.TaskID]bool, len(marks))
	for _, m := range marks {
		there[m.ID] = true
		old, known := s.marks[m.ID]
		switch {
		case !known:
			events[m.ID] = pb.TaskEvent_TASK_EVENT_ADDED
		case old != m.Sum:
			events[m.ID] = pb.TaskEvent_TASK_EVENT_CHANGED
		default:
			continue
		}
		s.drop(m.ID)
		s.marks[m.ID], s.last = m.Sum, max(s.last, m.ID)
		s.digest += digest(m.ID, m.Sum)
		if m.Running {
			s.running[m.ID] = true
		}
	}
	if all {
		asked = slices.Collect(maps.Keys(s.marks))
	}
	for _, id := range asked {
		if !there[id] {
			s.drop(id)
			events[id] = pb.TaskEvent_TASK_EVENT_DELETED
		}
	}
	return events
}

// drop forgets a task and takes its part out of the digest.
func (s *seen) drop(id store.TaskID) {
	if sum, known := s.marks[id]; known {
		s.digest -= digest(id, sum)
		delete(s.marks, id)
		delete(s.running, id)
	}
}

// digest is one task's part of the sum over all.
func digest(id store.TaskID, sum uint64) uint64 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	binary.BigEndian.PutUint64(b[8:], sum)
	return bytesHash(b[:])
}

// waypoint is the state of the tasks from which later changes are found
// again: the last one, those that ran, and of all others a digest.
type waypoint struct {
	Last    store.TaskID
	Rest    uint64
	Running map[store.TaskID]uint64 // and their marks
}

// maxRunning bounds a resume token: of more tasks that run, changes of the rest
// become LIST_ANEW.
const maxRunning = 64

// waypoint returns the present state as a place to resume from.
func (s *seen) waypoint() waypoint {
	p := waypoint{Last: s.last, Rest: s.digest, Running: map[store.TaskID]uint64{}}
	for _, id := range slices.Sorted(maps.Keys(s.running)) {
		if len(p.Running) == maxRunning {
			break
		}
		p.Running[id] = s.marks[id]
		p.Rest -= digest(id, s.marks[id])
	}
	return p
}

// since notes the changes since a place; anew is true for changes that are not known
// task by task.
func (s *seen) since(p *waypoint, events map[store.TaskID]pb.TaskEvent) (anew bool) {
	rest := s.digest
	for id, sum := range s.marks {
		if id > p.Last {
			events[id] = pb.TaskEvent_TASK_EVENT_ADDED
			rest -= digest(id, sum)
		}
	}
	for id, mark := range p.Running {
		sum, there := s.marks[id]
		switch {
		case !there:
			events[id] = pb.TaskEvent_TASK_EVENT_DELETED
			continue
		case sum != mark:
			events[id] = pb.TaskEvent_TASK_EVENT_CHANGED
		}
		rest -= digest(id, sum)
	}
	return rest != p.Rest || p.Last > s.last && len(s.marks) > 0
}

// token writes a place for a client to keep. It belongs to no question.
func (p *waypoint) token() string { return writeToken(*p, "watch") }

// parseResume reads a resume token; nil for none.
func parseResume(token string) (*waypoint, error) {
	if token == "" {
		return nil, nil
	}
	p, err := readToken[waypoint](token, "watch")
	if err != nil || len(p.Running) > maxRunning {
		return nil, invalid("resume_token",
			"%v: pass resume_token unchanged, or watch without one and list the tasks", errToken)
	}
	return &p, nil
}

// bytesHash returns the FNV-1a hash of b.
func bytesHash(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}
