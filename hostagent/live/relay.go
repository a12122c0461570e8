// Package live watches the monitors of a host for all viewers that go through the
// host, and serves them as wattmark.v1.BenchService: one connection and one stream a
// monitor, however many viewers there are, and no stream while there are none.
//
//	Relay    all benches, and BenchService over them; Run keeps it going
//	bench    one monitor: polled once a second and watched while it has viewers
//	mailbox  the news that one viewer has not taken yet: at most one State and one
//	         Moment a bench, however slow the viewer is
//
// A slow viewer gets the mean of the moments it missed, and never holds up a stream.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sentinel errors.
var (
	// ErrUnknown: the host is configured with no such bench.
	ErrUnknown = errors.New("no such bench")
	// ErrRefused: a recorder cannot start or stop as things are.
	ErrRefused = errors.New("cannot be done now")
	// ErrStopped: the host is being stopped.
	ErrStopped = errors.New("the host is being stopped")
)

// Monitor is a relay's view of a monitor; *monitorclient.Client implements it. Its methods
// are called from many goroutines; they return when ctx ends.
type Monitor interface {
	// Address identifies the monitor.
	Address() string
	GetBench(ctx context.Context) (session.Bench, error)
	// AskBench is GetBench after a probe of the instrument.
	AskBench(ctx context.Context) (session.Bench, error)
	Captures(ctx context.Context) ([]session.Capture, error)
	// Watch hands moments to see until ctx ends (nil), see fails, or the connection breaks.
	Watch(ctx context.Context, o session.WatchOptions, see func(session.Moment) error) error
}

// Recorder stores what a bench measures between a start and a stop as a task of the caller's. Stop returns when the
// task has its outcome. Errors wrap ErrRefused for a bench that is held, or recorded already, or not.
type Recorder interface {
	Start(ctx context.Context, address, name string) (store.TaskID, error)
	Stop(ctx context.Context, address string) (store.TaskID, error)
	Recording(address string) bool
}

// Config describes a relay. Zero durations are good ones.
type Config struct {
	Monitors []Monitor
	// TaskOf returns the task of a capture, 0 where the host's database has none. Nil where
	// there is no database.
	TaskOf func(ctx context.Context, captureID string) (store.TaskID, error)
	// Recorder records benches; nil where none can be.
	Recorder Recorder
	// Poll is the distance of the polls of a bench, and of the attempts at a stream that
	// broke; 1 s when zero.
	Poll time.Duration
	// Every is the distance of the moments; 50 ms when zero: a page shows a step of the power within 150 ms.
	Every time.Duration
	// Keep is the length of the history for new viewers; a minute when zero.
	Keep time.Duration
	// Linger is how long a stream outlives its last viewer, which may be a page that is
	// loaded anew; 2 s when zero.
	Linger time.Duration
}

// Reach is whether a monitor answers. The numbers are those of the protocol.
type Reach uint8

// The reaches.
const (
	Unasked Reach = 0
	Present Reach = 1
	Away    Reach = 2
)

// State is a bench as the host knows it.
type State struct {
	Address string
	Reach   Reach
	Since   time.Time // of Reach
	Why     string    // the reason for Away, else empty
	// Unwatched is the reason why the rails cannot be watched though the monitor answers;
	// empty when they can, or no viewer wants to.
	Unwatched string
	// Bench and Captures are the monitor's last answer; zero before the first.
	Bench     session.Bench
	Captures  []Capture
	Recording bool // by Config.Recorder
	// Last is the newest capture that no longer holds the bench, as far as watched; its ID
	// is empty for none. Of a short one only the ID may be known.
	Last Capture
}

// Capture is a capture that a monitor holds, with its task; 0 for none.
type Capture struct {
	session.Capture
	Task store.TaskID
}

// Holding returns the capture that holds the bench; ok is false where none is known.
func (s *State) Holding() (c Capture, ok bool) { return s.capture(s.Bench.CaptureID) }

// capture returns a capture by id, among Last and Captures.
func (s *State) capture(id string) (c Capture, ok bool) {
	for _, c := range append([]Capture{s.Last}, s.Captures...) {
		if c.ID != "" && c.ID == id {
			return c, true
		}
	}
	return c, false
}

// Moment is one average, or the mean of several that a viewer was too slow for.
type Moment struct {
	session.Moment
	At     time.Time    // of the arrival here
	Peak   measure.Watt // largest total among the averages
	Merged int          // number of averages
}

// News is a change of one bench for a viewer. Parts that did not change are nil.
type News struct {
	Address string
	State   *State
	Moment  *Moment
	// History are the last moments, oldest first: with a viewer's first news of a bench.
	History []Moment
}

// Options select the news of a viewer.
type Options struct {
	// Every is the least distance of moments; 0 for all.
	Every time.Duration
	// Idle also samples benches that nobody holds.
	Idle bool
}

// Relay watches the benches of a host, and is wattmark.v1.BenchService. Its methods are safe for concurrent use.
type Relay struct {
	pb.UnimplementedBenchServiceServer
	benches []*bench
	stopped chan struct{} // closed when Run ends
}

// New prepares a relay. Monitors of the same address are one bench.
func New(cfg Config) *Relay {
	cfg.Poll = cmp.Or(max(cfg.Poll, 0), time.Second)
	cfg.Every = cmp.Or(max(cfg.Every, 0), 50*time.Millisecond)
	cfg.Keep = cmp.Or(max(cfg.Keep, 0), time.Minute)
	cfg.Linger = cmp.Or(max(cfg.Linger, 0), 2*time.Second)
	r := &Relay{stopped: make(chan struct{})}
	seen := map[string]bool{}
	for _, m := range cfg.Monitors {
		a := m.Address()
		if seen[a] {
			continue
		}
		seen[a] = true
		r.benches = append(r.benches, &bench{
			cfg: &cfg, monitor: m, address: a, now: State{Address: a},
			changed: make(chan struct{}, 1), ask: make(chan struct{}, 1),
			viewers: map[*mailbox]bool{}, tasks: map[string]store.TaskID{},
		})
	}
	return r
}

func (r *Relay) String() string { return fmt.Sprintf("watch of %d benches", len(r.benches)) }

// Run watches for the viewers until ctx ends; then it ends their watches with ErrStopped,
// and returns nil.
func (r *Relay) Run(ctx context.Context) error {
	defer close(r.stopped)
	var all sync.WaitGroup
	for _, b := range r.benches {
		all.Go(func() { b.run(ctx) })
	}
	all.Wait()
	return nil
}

// States returns all benches in the order of the configuration. Benches without viewers
// are asked first, with their instruments, all at once and at most once a Poll.
func (r *Relay) States(ctx context.Context) []State {
	out := make([]State, len(r.benches))
	var wg sync.WaitGroup
	for i, b := range r.benches {
		wg.Go(func() { out[i] = b.stateNow(ctx) })
	}
	wg.Wait()
	return out
}

// find returns a bench by its address or, where only one has it, by its name. Errors wrap ErrUnknown.
func (r *Relay) find(name string) (*bench, error) {
	var named []*bench
	var all []string
	for _, b := range r.benches {
		if b.address == name {
			return b, nil
		}
		if s := b.state(); s.Bench.Name == name {
			named = append(named, b)
		}
		all = append(all, b.address)
	}
	list := strings.Join(all, ", ")
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) > 1:
		return nil, fmt.Errorf("%w: %d benches are called %q: use the address of the monitor",
			ErrUnknown, len(named), name)
	case list == "":
		list = "none"
	}
	return nil, fmt.Errorf("%w: %q: this host was told of %s (wattmark host --monitor)", ErrUnknown, name, list)
}

// Watch hands news of a bench to see, of all where name is empty, until ctx ends (its
// error), see fails (its error), or Run ends (ErrStopped). It begins with the state and
// the history of each. Errors also wrap ErrUnknown.
func (r *Relay) Watch(ctx context.Context, name string, o Options, see func(News) error) error {
	list := r.benches
	if name != "" {
		b, err := r.find(name)
		if err != nil {
			return err
		}
		list = []*bench{b}
	}
	box := &mailbox{wake: make(chan struct{}, 1), sent: map[string]time.Time{}}
	for _, b := range list {
		b.join(box, o.Idle)
		defer b.leave(box)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil { // a wake that comes with the end does not put it off
		news, next := box.take(time.Now(), o.Every)
		for _, n := range news {
			if err := see(n); err != nil {
				return err
			}
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-r.stopped:
			return ErrStopped
		case <-box.wake:
		case <-timer.C:
		}
	}
	return ctx.Err()
}

// Register adds BenchService to a server. Its watches end when Run does.
func (r *Relay) Register(server *grpc.Server) { pb.RegisterBenchServiceServer(server, r) }

// ListBenches returns all benches.
func (r *Relay) ListBenches(ctx context.Context, _ *pb.ListBenchesRequest) (*pb.ListBenchesResponse, error) {
	benches := lists.Map(r.States(ctx), func(s State) *pb.BenchState { return stateMessage(&s) })
	return &pb.ListBenchesResponse{Benches: benches}, toStatus("list benches", ctx.Err())
}

// ReadBench returns one bench.
func (r *Relay) ReadBench(ctx context.Context, q *pb.ReadBenchRequest) (*pb.ReadBenchResponse, error) {
	b, err := r.find(q.GetBench())
	if err != nil {
		return nil, toStatus("read bench", err)
	}
	return &pb.ReadBenchResponse{State: stateMessage(new(b.stateNow(ctx)))}, nil
}

// WatchBenches streams news of benches until the caller or the relay ends it.
func (r *Relay) WatchBenches(
	q *pb.WatchBenchesRequest, stream grpc.ServerStreamingServer[pb.WatchBenchesResponse],
) error {
	o := Options{Idle: q.GetIdle()}
	if e := q.GetEvery(); e != nil {
		if o.Every = e.AsDuration(); e.CheckValid() != nil || o.Every < 0 || o.Every > time.Hour {
			return status.Errorf(codes.InvalidArgument, "every: %v: want 0 to an hour", o.Every)
		}
	}
	return toStatus("watch benches", r.Watch(stream.Context(), q.GetBench(), o, func(n News) error {
		p := &pb.WatchBenchesResponse{Bench: wire.Text(n.Address)}
		if n.State != nil {
			p.State = stateMessage(n.State)
		}
		if n.Moment != nil {
			p.Moment = momentMessage(*n.Moment)
			if !q.GetWave() {
				p.Moment.WaveW, p.Moment.WaveStepS = nil, 0
			}
		}
		if n.History != nil {
			p.History = historyMessage(n.History)
		}
		return stream.Send(p)
	}))
}

// StartRecording begins a recording of a bench as the caller's.
func (r *Relay) StartRecording(ctx context.Context, q *pb.StartRecordingRequest) (*pb.StartRecordingResponse, error) {
	name := strings.TrimSpace(q.GetName())
	if name == "" || len(name) > 200 {
		return nil, status.Error(codes.InvalidArgument, "name: want a name for the task, of 1 to 200 bytes")
	}
	id, err := r.record(q.GetBench(), func(r Recorder, address string) (store.TaskID, error) {
		return r.Start(ctx, address, name)
	})
	return &pb.StartRecordingResponse{TaskId: int64(id)}, toStatus("record "+q.GetBench(), err)
}

// StopRecording ends a recording, and waits for its task.
func (r *Relay) StopRecording(ctx context.Context, q *pb.StopRecordingRequest) (*pb.StopRecordingResponse, error) {
	id, err := r.record(q.GetBench(), func(r Recorder, address string) (store.TaskID, error) {
		return r.Stop(ctx, address)
	})
	return &pb.StopRecordingResponse{TaskId: int64(id)}, toStatus("stop recording "+q.GetBench(), err)
}

// record starts or stops a recording of a bench, whose viewers hear of it at once.
func (r *Relay) record(name string, do func(Recorder, string) (store.TaskID, error)) (store.TaskID, error) {
	b, err := r.find(name)
	if err != nil {
		return 0, err
	}
	if b.cfg.Recorder == nil {
		return 0, errors.ErrUnsupported
	}
	defer backoff.Nudge(b.ask)
	return do(b.cfg.Recorder, b.address)
}

// toStatus turns an error of an operation into a status by outcomes.
func toStatus(operation string, err error) error { return wire.Status(operation, err, outcomes) }

// stateMessage converts a bench to its message.
func stateMessage(s *State) *pb.BenchState {
	b := &s.Bench
	m := benchMessage(*s)
	if b.Protocol != (session.Protocol{}) {
		m.Protocol = b.Protocol.String()
	}
	if m.Trouble == "" && s.Reach != Away { // Away includes it
		m.Trouble = wire.Text(s.Unwatched)
	}
	if b.Known() {
		p := wire.Setup(b.Setup)
		m.Records, m.SampleRateHz = p.Records, float64(b.Setup.Timebase.SampleRate())
		m.Rails = lists.Map(p.Rails, func(r *pb.Rail) string { return wire.Text(r.Name) })
		m.Missing = lists.Map(p.Missing, wire.Text)
	}
	if c, ok := s.Holding(); ok {
		m.TaskName, m.TaskId = wire.Text(c.TaskName), int64(c.Task)
	}
	if s.Last.ID != "" {
		m.Last = captureMessage(s.Last)
	}
	return m
}

// historyMessage converts moments to columns, in seconds since 1970 and watts. The rails
// are those of the newest moment; older ones of other rails, of another bench file, are
// left out.
func historyMessage(list []Moment) *pb.LiveHistory {
	h := &pb.LiveHistory{}
	if len(list) == 0 {
		return h
	}
	rails := list[len(list)-1].Rails
	h.Rails = lists.Map(rails, func(r session.RailValue) *pb.RailHistory {
		return &pb.RailHistory{Rail: wire.Text(r.Rail)}
	})
	for i := range list {
		m := &list[i]
		if !sameRails(m.Rails, rails) {
			continue
		}
		h.AtS = append(h.AtS, float64(m.At.UnixNano())/1e9)
		h.TotalW = append(h.TotalW, float64(m.Total))
		for j, r := range m.Rails {
			h.Rails[j].PowerW = append(h.Rails[j].PowerW, float64(r.Power))
		}
	}
	return h
}

// outcomes are the codes of the errors of calls.
var outcomes = []wire.Outcome{
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{ErrUnknown, codes.NotFound, ""},
	{ErrStopped, codes.Unavailable, "watch again when it is back"},
	{errors.ErrUnsupported, codes.Unimplemented, "this host records nothing"},
	{ErrRefused, codes.FailedPrecondition, ""},
}
