package relay

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/internal/backoff"
)

// StreamStatus is the state of one partition.
type StreamStatus struct {
	Stream   string          `json:"stream"`
	Leader   string          `json:"leader"` // empty for none
	Replicas []ReplicaStatus `json:"replicas"`
	Messages uint64          `json:"messages"`
	Bytes    uint64          `json:"bytes"`
	MaxBytes int64           `json:"max_bytes,omitempty"`
	Tasks    int             `json:"tasks"`               // with an end
	Aside    int             `json:"aside"`               // of these, set aside by a store
	SetAside []Aside         `json:"set_aside,omitempty"` // the first of them, with their reasons
	Stores   []StoreStatus   `json:"stores"`
	// Trouble is the reason for which the rest is not known.
	Trouble string `json:"trouble,omitempty"`
}

// ReplicaStatus is the state of one copy, as the leader reports it.
type ReplicaStatus struct {
	Node    string        `json:"node"`
	Leader  bool          `json:"leader,omitempty"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Lag     uint64        `json:"lag"`     // in messages
	Seen    time.Duration `json:"seen_ns"` // the time since its last sign of life
}

// StoreStatus is the progress of a store.
type StoreStatus struct {
	Name    string `json:"name"`
	Waiting uint64 `json:"waiting"` // tasks that were not sent to it yet
	Working int    `json:"working"` // that were sent, and not acknowledged
}

// shownAside is the most tasks that were set aside in a stream of which the status has the reasons.
const shownAside = 20

// Status returns the state of all partitions. A partition that does not answer has its Trouble.
func (b *Bus) Status(ctx context.Context) (out []StreamStatus) {
	// Partitions are asked one after the other: with a cluster that is away the call takes up to
	// callWithin for each.
	for p := range b.partitions {
		s := StreamStatus{Stream: StreamName(p)}
		if err := b.status(ctx, p, &s); err != nil {
			s.Trouble = explained(err).Error()
		}
		out = append(out, s)
	}
	return out
}

// status fills in the state of a partition, in at most callWithin.
func (b *Bus) status(ctx context.Context, p int, out *StreamStatus) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, out.Stream)
	if err != nil {
		return err
	}
	i := s.CachedInfo()
	// CachedInfo is the answer to Stream, not another request.
	out.Messages, out.Bytes, out.MaxBytes = i.State.Msgs, i.State.Bytes, max(0, i.Config.MaxBytes)
	if c := i.Cluster; c != nil {
		// The leader is not among its replicas in the answer.
		if out.Leader = c.Leader; c.Leader != "" {
			out.Replicas = append(out.Replicas, ReplicaStatus{Node: c.Leader, Leader: true, Current: true})
		}
		for _, r := range c.Replicas {
			out.Replicas = append(out.Replicas, ReplicaStatus{
				Node: r.Name, Current: r.Current, Offline: r.Offline, Lag: r.Lag, Seen: r.Active,
			})
		}
		slices.SortFunc(out.Replicas, func(a, b ReplicaStatus) int { return strings.Compare(a.Node, b.Node) })
	}
	ends, err := b.subjects(ctx, p, "*", "*", kindEnd)
	if err != nil {
		return err
	}
	asides, err := b.subjects(ctx, p, "*", "*", kindAside)
	if err == nil {
		out.SetAside, err = b.asides(ctx, p, shownAside)
	}
	if err != nil {
		return err
	}
	out.Tasks, out.Aside = len(ends), len(asides)
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		// Consumers that are not durable are readers of this program, such as Usage.
		if c.Config.Durable != "" {
			out.Stores = append(out.Stores, StoreStatus{Name: c.Name, Waiting: c.NumPending, Working: c.NumAckPending})
		}
	}
	slices.SortFunc(out.Stores, func(a, b StoreStatus) int { return strings.Compare(a.Name, b.Name) })
	return list.Err()
}

// MostMessages is the most messages that a user with the right to publish under that name alone
// may have in the streams: they cost the servers memory, however small they are.
const MostMessages = 1 << 20

// Usage counts the messages and bytes of such users in the streams, from the heads of all
// messages. Its methods may be called at the same time.
type Usage struct {
	bus *Bus

	mu sync.Mutex
	// A subject of samples has many messages, those of ends and indexes have one.
	of map[publisher]map[string]held // by subject
}

// held is the content of a subject.
type held struct{ messages, bytes uint64 }

// messageBytes estimates the size of a message beside its subject and its content.
const messageBytes = 128

// recountEvery is the time between two looks for messages that were removed.
const recountEvery = 2 * time.Second

// NewUsage connects. Run counts, and closes the connection; it must be called.
func NewUsage(ctx context.Context, o Options) (*Usage, error) {
	b, err := Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Usage{bus: b, of: map[publisher]map[string]held{}}, nil
}

// Run counts until the context ends.
func (u *Usage) Run(ctx context.Context) {
	defer u.bus.Close()
	var wg sync.WaitGroup
	// One goroutine follows each stream; where it fails, it begins anew after a pause.
	for p := range u.bus.partitions {
		wg.Go(func() {
			for wait := firstPause; backoff.Sleep(ctx, wait) == nil; wait = longestStep {
				if err := u.follow(ctx, p); err != nil && ctx.Err() == nil {
					u.bus.log.Debug("cannot count what users have in a stream", "stream", StreamName(p), "error", err)
				}
			}
		})
	}
	// Removals leave no message, so they are found by counting.
	wg.Go(func() {
		for backoff.Sleep(ctx, recountEvery) == nil {
			u.recount(ctx)
		}
	})
	wg.Wait()
}

// follow adds the messages that a stream has, and all that come, until it fails.
// An ordered consumer begins at the first message and survives a lost connection; with HeadersOnly, the
// size comes in a header and the content stays at the server.
func (u *Usage) follow(ctx context.Context, partition int) error {
	asking, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	heads := jetstream.OrderedConsumerConfig{HeadersOnly: true}
	c, err := u.bus.js.OrderedConsumer(asking, StreamName(partition), heads)
	if err != nil {
		return err
	}
	list, err := c.Messages()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, list.Stop)
	defer stop()
	defer list.Stop()
	// Counted anew from the first message on.
	u.keep(func(_ publisher, subject string, h held) (held, bool) {
		return h, parseSubject(subject).partition != partition
	})
	for {
		m, err := list.Next()
		if err != nil {
			return err
		}
		size, _ := strconv.ParseUint(m.Headers().Get(nats.MsgSize), 10, 63)
		by := parseSubject(m.Subject()).by
		if by == anyone {
			continue
		}
		u.mu.Lock()
		if u.of[by] == nil {
			u.of[by] = map[string]held{}
		}
		h := u.of[by][m.Subject()]
		u.of[by][m.Subject()] = held{h.messages + 1, h.bytes + size + uint64(len(m.Subject())) + messageBytes}
		u.mu.Unlock()
	}
}

// keep replaces each count, or drops it.
func (u *Usage) keep(f func(by publisher, subject string, h held) (held, bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for by, list := range u.of {
		for subject, h := range list {
			h, there := f(by, subject, h)
			if list[subject] = h; !there {
				delete(list, subject)
			}
		}
		if len(list) == 0 {
			delete(u.of, by)
		}
	}
}

// recount subtracts messages that were removed; those of a subject are removed together. The streams give
// the number of messages a subject, and no sizes: where some of a subject's are left, their bytes are taken
// to be its mean. Messages that come between the snapshot and the answer stay counted.
func (u *Usage) recount(ctx context.Context) {
	u.mu.Lock()
	users := slices.Collect(maps.Keys(u.of))
	u.mu.Unlock()
	// Without the lock while the cluster is asked: follow goes on counting.
	for _, by := range users {
		for p := range u.bus.partitions {
			u.mu.Lock()
			before := maps.Clone(u.of[by])
			u.mu.Unlock()
			there, err := u.bus.subjects(ctx, p, by, "*", "*")
			if err != nil {
				continue
			}
			u.keep(func(of publisher, subject string, h held) (held, bool) {
				was, counted := before[subject]
				// Nothing of the subject was removed, or it came after the snapshot.
				if of != by || !counted || parseSubject(subject).partition != p || there[subject] >= was.messages {
					return h, true
				}
				left := there[subject]
				h = held{h.messages - was.messages + left, h.bytes - was.bytes + was.bytes/was.messages*left}
				return h, h.messages > 0
			})
		}
	}
}

// Of returns the number of messages and bytes of a user in the streams.
func (u *Usage) Of(user string) (messages, bytes uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, h := range u.of[publisherOf(user)] {
		messages, bytes = messages+h.messages, bytes+h.bytes
	}
	return messages, bytes
}

// Unclaimed is the time for which samples without a host's task stay in the streams. The task
// that their monitor files in its stead is in the stores by then.
const Unclaimed = 24 * time.Hour

// share is all that one publisher has published of a source.
type share struct {
	by     publisher
	source Key
}

// freeing is the state of one share.
type freeing struct {
	tasks  int
	keep   bool // a store has not acknowledged one of its ends, or set it aside
	hosts  bool // one of its ends is a host's
	newest time.Time
}

// Free removes from a partition the tasks that all its stores have acknowledged, and samples
// without a host's task for longer than unclaimed. It returns the number of tasks. A share is
// removed as a whole, its samples and all tasks of them; that of anyone stays until all tasks of
// the source are acknowledged. Tasks that a store set aside stay. Without any store all stays.
func (b *Bus) Free(ctx context.Context, partition int, unclaimed time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return 0, err
	}
	// floor is the sequence number up to which every store has acknowledged all ends.
	floor, some, err := acknowledged(ctx, s)
	if err != nil || !some {
		return 0, err
	}
	shares, waiting, err := b.shares(ctx, s, partition, floor)
	if err != nil {
		return 0, err
	}
	// A monitor publishes for anyone, its index names the user that took the bench: with that user's task in
	// the stream the samples are claimed, and need not grow old to be removed.
	// First pass: claims. Second pass: removal, share by share.
	for of, f := range shares {
		all := shares[share{anyone, of.source}]
		if of.by == anyone || !f.hosts || all == nil {
			continue
		}
		m, err := b.last(ctx, partition, subject(partition, anyone, of.source, sourceItself, kindIndex))
		if err != nil {
			continue
		}
		_, user, err := unpack(m.Data, m.Sequence)
		all.hosts = all.hosts || err == nil && len(user) > 0 && publisherOf(string(user)) == of.by
	}
	for of, f := range shares {
		// Kept: what a store still needs, the samples of anyone while a task of their source waits, and
		// unclaimed samples that are young.
		if f.keep || of.by == anyone && waiting[of.source] || !f.hosts && time.Since(f.newest) < unclaimed {
			continue
		}
		// A purge by subject: the server removes all messages of the share in one step.
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject(partition, of.by, of.source, "*", "*"))); err != nil {
			return n, err
		}
		if f.tasks == 0 {
			b.log.Warn("samples without a task were removed",
				"stream", StreamName(partition), "source", of.source, "since", f.newest)
		}
		n += f.tasks
	}
	return n, nil
}

// acknowledged returns the sequence number up to which all stores have acknowledged all ends;
// some is false where there is no store.
func acknowledged(ctx context.Context, s jetstream.Stream) (floor uint64, some bool, err error) {
	// A store that is registered and away holds the floor back: its tasks stay.
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		if c.Config.Durable == "" {
			continue
		}
		if !some || c.AckFloor.Stream < floor {
			floor, some = c.AckFloor.Stream, true
		}
	}
	return floor, some, list.Err()
}

// shares reads each end, and the last samples of shares that have none, which give their age. waiting are
// the sources of tasks that not all stores have acknowledged.
func (b *Bus) shares(
	ctx context.Context, s jetstream.Stream, partition int, floor uint64,
) (out map[share]*freeing, waiting map[Key]bool, err error) {
	of := map[string]map[string]uint64{}
	for _, kind := range []string{kindEnd, kindAside, kindChunk} {
		if of[kind], err = b.subjects(ctx, partition, "*", "*", kind); err != nil {
			return nil, nil, err
		}
	}
	out, waiting = map[share]*freeing{}, map[Key]bool{}
	// The ends come first: samples are looked up only where no end has decided, by one request for each of
	// their subjects.
	for _, kind := range []string{kindEnd, kindChunk} {
		for sub := range of[kind] {
			a := parseSubject(sub)
			f := out[share{a.by, a.source}]
			if kind == kindChunk && f != nil && (f.keep || f.hosts) {
				continue
			}
			m, err := s.GetLastMsgForSubject(ctx, sub)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // another store has freed it meanwhile
			} else if err != nil {
				return nil, nil, err
			}
			if f == nil {
				f = &freeing{}
				out[share{a.by, a.source}] = f
			}
			if m.Time.After(f.newest) {
				f.newest = m.Time
			}
			if kind == kindChunk {
				f.keep = f.keep || a.source == ""
				continue
			}
			var e End
			// A note of a store that could not take the task stands beside the end.
			_, aside := of[kindAside][strings.TrimSuffix(sub, kindEnd)+kindAside]
			readable := json.Unmarshal(m.Data, &e) == nil && a.source != "" && a.key != ""
			f.tasks++
			waiting[a.source] = waiting[a.source] || m.Sequence > floor
			// An end above the floor was not acknowledged by each of the stores.
			f.keep = f.keep || aside || m.Sequence > floor || !readable
			f.hosts = f.hosts || !e.Orphan
		}
	}
	return out, waiting, nil
}
