package relay

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Unclaimed is how long samples stay in the streams of which no host has said what they
// are: what the monitor that published them filed in its stead is in the stores by then.
const Unclaimed = 24 * time.Hour

// share is what one publisher has published of a source.
type share struct {
	by     publisher
	source Key
}

// freeing is what a look at a partition finds of one share.
type freeing struct {
	tasks  int
	keep   bool // a store has not acknowledged one of its ends, or set it aside
	hosts  bool // one of its ends is a host's
	newest time.Time
}

// Free removes from a partition what all its stores have acknowledged, and samples that
// nobody has claimed for longer than unclaimed, and returns how many tasks. What a publisher
// has published of one source goes at once: its samples and all tasks of them; what was published for
// anyone stays until all tasks of the source are acknowledged. Tasks that a store set aside stay. Without
// any store all stays.
func (b *Bus) Free(ctx context.Context, partition int, unclaimed time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return 0, err
	}
	floor, some, err := acknowledged(ctx, s)
	if err != nil || !some {
		return 0, err
	}
	shares, waiting, err := b.shares(ctx, s, partition, floor)
	if err != nil {
		return 0, err
	}
	for of, f := range shares {
		if of.by != anyone && f.hosts && shares[share{anyone, of.source}] != nil && b.ownerOf(ctx, partition, of.source) == of.by {
			shares[share{anyone, of.source}].hosts = true // what a monitor has published of the user's capture
		}
	}
	for of, f := range shares {
		if f.keep || of.by == anyone && waiting[of.source] || !f.hosts && time.Since(f.newest) < unclaimed {
			continue
		}
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject(partition, of.by, of.source, "*", "*"))); err != nil {
			return n, err
		}
		if f.tasks == 0 {
			b.log.Warn("samples that nobody said anything of were removed", "stream", StreamName(partition), "source", of.source, "since", f.newest)
		}
		n += f.tasks
	}
	return n, nil
}

// acknowledged is the place up to which all stores have acknowledged all; some is false
// where there is no store.
func acknowledged(ctx context.Context, s jetstream.Stream) (floor uint64, some bool, err error) {
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

// shares looks at each end, and at the last samples of shares that have none. waiting are
// the sources of which a task is not acknowledged by all stores.
func (b *Bus) shares(ctx context.Context, s jetstream.Stream, partition int, floor uint64) (out map[share]*freeing, waiting map[Key]bool, err error) {
	ends, err := b.subjects(ctx, partition, kindEnd)
	if err != nil {
		return nil, nil, err
	}
	asides, err := b.subjects(ctx, partition, kindAside)
	if err != nil {
		return nil, nil, err
	}
	samples, err := b.subjects(ctx, partition, kindChunk)
	if err != nil {
		return nil, nil, err
	}
	out, waiting = map[share]*freeing{}, map[Key]bool{}
	at := func(subject string) share { return share{byOf(subject), sourceOf(subject)} }
	of := func(subject string) *freeing {
		f := out[at(subject)]
		if f == nil {
			f = &freeing{}
			out[at(subject)] = f
		}
		return f
	}
	for sub := range ends {
		m, err := s.GetLastMsgForSubject(ctx, sub)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // another store was faster
		} else if err != nil {
			return nil, nil, err
		}
		var e End
		_, aside := asides[strings.TrimSuffix(sub, kindEnd)+kindAside]
		readable := json.Unmarshal(m.Data, &e) == nil && sourceOf(sub) != "" && keyOf(sub) != ""
		f := of(sub)
		f.tasks++
		waiting[sourceOf(sub)] = waiting[sourceOf(sub)] || m.Sequence > floor
		f.keep = f.keep || aside || m.Sequence > floor || !readable
		f.hosts = f.hosts || !e.Orphan
		f.newest = later(f.newest, m.Time)
	}
	for sub := range samples {
		if f := out[at(sub)]; f != nil && (f.keep || f.hosts) {
			continue // decided
		}
		m, err := s.GetLastMsgForSubject(ctx, sub)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		} else if err != nil {
			return nil, nil, err
		}
		f := of(sub)
		f.newest = later(f.newest, m.Time)
		f.keep = f.keep || sourceOf(sub) == ""
	}
	return out, waiting, nil
}

// ownerOf is who took the bench for a capture, as the monitor's index says.
func (b *Bus) ownerOf(ctx context.Context, partition int, source Key) publisher {
	m, err := b.last(ctx, partition, subject(partition, anyone, source, sourceItself, kindIndex))
	if err != nil {
		return ""
	}
	_, user, err := unpack(m.Data, m.Sequence)
	if err != nil || len(user) == 0 {
		return ""
	}
	return publisherOf(string(user))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
