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

// freeing is what a look at a partition finds of one source.
type freeing struct {
	tasks  int
	keep   bool // a store has not acknowledged one of its ends, or set it aside
	hosts  bool // one of its ends is a host's
	newest time.Time
}

// Free removes from a partition what all its stores have acknowledged, and samples that
// nobody has claimed for longer than unclaimed, and returns how many tasks. What belongs to
// one source goes at once: its samples and all tasks of them. Tasks that a store set aside
// stay. Without any store all stays.
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
	sources, err := b.sources(ctx, s, partition, floor)
	if err != nil {
		return 0, err
	}
	for source, f := range sources {
		if f.keep || !f.hosts && time.Since(f.newest) < unclaimed {
			continue
		}
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject(partition, source, "*", "*"))); err != nil {
			return n, err
		}
		if f.tasks == 0 {
			b.log.Warn("samples that nobody said anything of were removed", "stream", StreamName(partition), "source", source, "since", f.newest)
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

// sources looks at each end, and at the last samples of sources that have none.
func (b *Bus) sources(ctx context.Context, s jetstream.Stream, partition int, floor uint64) (map[Key]*freeing, error) {
	ends, err := b.subjects(ctx, partition, kindEnd)
	if err != nil {
		return nil, err
	}
	asides, err := b.subjects(ctx, partition, kindAside)
	if err != nil {
		return nil, err
	}
	samples, err := b.subjects(ctx, partition, kindChunk)
	if err != nil {
		return nil, err
	}
	out := map[Key]*freeing{}
	of := func(subject string) *freeing {
		f := out[sourceOf(subject)]
		if f == nil {
			f = &freeing{}
			out[sourceOf(subject)] = f
		}
		return f
	}
	for sub := range ends {
		m, err := s.GetLastMsgForSubject(ctx, sub)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // another store was faster
		} else if err != nil {
			return nil, err
		}
		var e End
		_, aside := asides[strings.TrimSuffix(sub, kindEnd)+kindAside]
		readable := json.Unmarshal(m.Data, &e) == nil && sourceOf(sub) != "" && keyOf(sub) != ""
		f := of(sub)
		f.tasks++
		f.keep = f.keep || aside || m.Sequence > floor || !readable
		f.hosts = f.hosts || !e.Orphan
		f.newest = later(f.newest, m.Time)
	}
	for sub := range samples {
		if f := out[sourceOf(sub)]; f != nil && (f.keep || f.hosts) {
			continue // decided
		}
		m, err := s.GetLastMsgForSubject(ctx, sub)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		f := of(sub)
		f.newest = later(f.newest, m.Time)
		f.keep = f.keep || sourceOf(sub) == ""
	}
	return out, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
