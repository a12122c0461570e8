package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"wattmark/store"
)

// Aside is a task that a store could not take.
type Aside struct {
	Key   Key       `json:"key"`
	Store string    `json:"store"`
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
	Seq   uint64    `json:"seq"` // of its end
}

// errAway: the cluster does not answer.
var errAway = errors.New("the cluster does not answer")

// passing reports whether an error says nothing of the task: the database, the disk or the
// cluster is away, full or damaged, and no other task could be stored either.
func passing(err error) bool {
	var os syscall.Errno
	return errors.As(err, &os) || isAny(err, errAway, store.ErrUnreachable, store.ErrFull, store.ErrBusy, store.ErrIO,
		store.ErrReadOnly, store.ErrCannotOpen, store.ErrDamaged, store.ErrNotDatabase)
}

// ofContent says of an error of a task's own database, which is here as it was published,
// that it comes each time; unless this machine lacks the room to read it.
func ofContent(ctx context.Context, err error) error {
	var os syscall.Errno
	if ctx.Err() != nil || errors.As(err, &os) || isAny(err, ErrMalformed, context.DeadlineExceeded, store.ErrFull, store.ErrIO, store.ErrBusy, store.ErrCannotOpen) {
		return err
	}
	return malformed("its rows cannot be read: %v", err)
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

// hopeless reports whether a task cannot be stored however often it is tried.
func hopeless(err error) bool {
	return isAny(err, ErrMalformed, ErrMissing, store.ErrCorrupt, store.ErrConflict)
}

// tries is how often a task is tried that cannot be stored for a reason that is not known to
// be its own.
const tries = 3

// refused sets a task aside that cannot be stored, or has it tried again. Errors say that
// the database takes no task at all.
func (t *taker) refused(ctx context.Context, m jetstream.Msg, key Key, why error) error {
	if !hopeless(why) {
		if err := t.DB.TryTask(ctx); err != nil {
			_ = m.NakWithDelay(longestStep)
			return err
		}
		if t.failed[key]++; t.failed[key] < tries {
			delay := 2 * time.Second
			if t.Retry > 0 {
				delay = t.Retry
			}
			if t.failed[key] > 1 {
				delay *= 5
			}
			t.log.Warn("could not store a task: it is tried again", "key", key, "in", delay, "error", why)
			return m.NakWithDelay(delay)
		}
		why = fmt.Errorf("tried %d times, and the database takes others: %w", tries, why)
	}
	t.setAside(ctx, m, key, why)
	return nil
}

// setAside names a task that can never be stored, and goes on to the next. Its messages
// stay in the stream.
func (t *taker) setAside(ctx context.Context, m jetstream.Msg, key Key, why error) {
	meta, err := m.Metadata()
	if err != nil {
		t.log.Warn("a message without its place", "error", err)
		return
	}
	a := Aside{Key: key, Store: t.Name, Why: why.Error(), At: time.Now().UTC(), Seq: meta.Sequence.Stream}
	content, err := json.Marshal(a)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		name, source := string(key), sourceOf(m.Subject())
		if name == "" || source == "" { // the subject bears no key
			name, source = fmt.Sprintf("unknown-%d", a.Seq), "unknown"
		}
		_, err = t.Bus.js.Publish(ctx, subject(t.partition, source, Key(name), kindAside), content,
			jetstream.WithMsgID(fmt.Sprintf("%s/a/%s/%d", name, t.Name, a.Seq)), jetstream.WithExpectStream(StreamName(t.partition)))
	}
	if err != nil {
		t.log.Warn("a task cannot be stored, and the cluster did not take note of it", "key", key, "reason", why, "error", err)
		_ = m.NakWithDelay(longestStep)
		return
	}
	delete(t.failed, key)
	t.log.Error("a task cannot be stored: it was set aside", "key", key, "reason", why)
	_ = m.TermWithReason("set aside")
}

// Asides lists what was set aside, newest last.
func (b *Bus) Asides(ctx context.Context) (out []Aside, err error) {
	for p := range b.partitions {
		keys, err := b.subjects(ctx, p, kindAside)
		if err != nil {
			return nil, err
		}
		s, err := b.js.Stream(ctx, StreamName(p))
		if err != nil {
			return nil, err
		}
		for sub := range keys {
			m, err := s.GetLastMsgForSubject(ctx, sub)
			if err != nil {
				return nil, err
			}
			var a Aside
			if err := json.Unmarshal(m.Data, &a); err != nil {
				return nil, fmt.Errorf("%s: %w", sub, err)
			}
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Aside) int { return a.At.Compare(b.At) })
	return out, nil
}

// ErrNotAside: no such task was set aside.
var ErrNotAside = errors.New("no such task was set aside")

// Again offers a task that was set aside to all stores anew, or, with drop, removes it
// from the stream.
func (b *Bus) Again(ctx context.Context, key Key, drop bool) error {
	p := key.Partition(b.partitions)
	s, err := b.js.Stream(ctx, StreamName(p))
	if err != nil {
		return err
	}
	aside, err := s.GetLastMsgForSubject(ctx, subject(p, "*", key, kindAside))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("%s: %w", key, ErrNotAside)
	} else if err != nil {
		return err
	}
	if drop {
		return s.Purge(ctx, jetstream.WithPurgeSubject(strings.TrimSuffix(aside.Subject, kindAside)+"*"))
	}
	m, err := s.GetLastMsgForSubject(ctx, strings.TrimSuffix(aside.Subject, kindAside)+kindEnd)
	if err != nil {
		return err
	}
	if _, err := b.js.Publish(ctx, m.Subject, m.Data); err != nil {
		return explained(err)
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(aside.Subject))
}

// subjects lists the subjects of a kind in a partition.
func (b *Bus) subjects(ctx context.Context, partition int, kind string) (map[string]uint64, error) {
	return b.filtered(ctx, partition, subject(partition, "*", "*", kind))
}

// filtered lists the subjects that fit a pattern.
func (b *Bus) filtered(ctx context.Context, partition int, pattern string) (map[string]uint64, error) {
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(pattern))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}
