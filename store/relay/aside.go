package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"wattmark/measure"
	"wattmark/store"
)

// Aside is a task that a store could not take.
type Aside struct {
	Key    Key       `json:"key"`
	Stream string    `json:"stream"`
	User   string    `json:"user,omitempty"` // as its end says, or who published it
	Name   string    `json:"name,omitempty"`
	Store  string    `json:"store"`
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq"` // of its end

	subject string
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
	if ctx.Err() != nil || errors.As(err, &os) || isAny(err, ErrMalformed, store.ErrFull, store.ErrIO, store.ErrBusy, store.ErrCannotOpen) {
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

// plain says in a sentence why a task cannot be stored, with the error behind it.
func plain(why error) string {
	for _, x := range []struct {
		is   error
		says string
	}{
		{ErrMissing, "a part of it is no longer in the stream"},
		{ErrMalformed, "what was published is not a task that this store can read"},
		{store.ErrConflict, "the database has another task in its place"},
		{store.ErrCorrupt, "its samples are damaged"},
	} {
		if errors.Is(why, x.is) {
			return x.says + ": " + why.Error()
		}
	}
	return why.Error()
}

// setAside names a task that can never be stored, and goes on to the next. Its messages
// stay in the stream.
func (t *taker) setAside(ctx context.Context, m jetstream.Msg, key Key, why error) {
	meta, err := m.Metadata()
	if err != nil {
		t.log.Warn("a message without its place", "error", err)
		return
	}
	var end End
	_ = json.Unmarshal(m.Data(), &end) // it may be what is wrong
	a := Aside{
		Key: key, Stream: StreamName(t.partition), Store: t.Name, Why: plain(why), At: time.Now().UTC(), Seq: meta.Sequence.Stream,
		User: byOf(m.Subject()).user(), Name: end.Name,
	}
	if a.User == "" {
		a.User = end.User
	}
	content, err := json.Marshal(a)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		_, err = t.Bus.js.Publish(ctx, strings.TrimSuffix(m.Subject(), kindEnd)+kindAside, content,
			jetstream.WithMsgID(fmt.Sprintf("%s/a/%s/%d", m.Subject(), t.Name, a.Seq)), jetstream.WithExpectStream(StreamName(t.partition)))
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
		list, err := b.asides(ctx, p, math.MaxInt)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b Aside) int { return a.At.Compare(b.At) })
	return out, nil
}

// asides lists what was set aside in a partition, at most so many.
func (b *Bus) asides(ctx context.Context, partition, most int) (out []Aside, err error) {
	keys, err := b.subjects(ctx, partition, kindAside)
	if err != nil {
		return nil, err
	}
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	for sub := range keys {
		if len(out) >= most {
			break
		}
		m, err := s.GetLastMsgForSubject(ctx, sub)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // it was dropped meanwhile
		} else if err != nil {
			return nil, err
		}
		a := Aside{Stream: StreamName(partition), subject: sub}
		if err := json.Unmarshal(m.Data, &a); err != nil {
			a.Why, a.At = fmt.Sprintf("its note cannot be read: %v", err), m.Time
		}
		a.User, a.Name, a.Why = measure.Printable(a.User), measure.Printable(a.Name), measure.Printable(a.Why)
		if _, err := a.Key.bytes(); err != nil { // its end bore none
			a.Key = Key(fmt.Sprintf("message-%d", a.Seq))
		}
		out = append(out, a)
	}
	return out, nil
}

// ErrNotAside: no such task was set aside.
var ErrNotAside = errors.New("no such task was set aside")

// Again offers a task that was set aside to all stores anew, or, with drop, removes it
// from the stream.
func (b *Bus) Again(ctx context.Context, key Key, drop bool) error {
	list, err := b.Asides(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(a Aside) bool { return a.Key == key })
	if i < 0 {
		return fmt.Errorf("%s: %w", key, ErrNotAside)
	}
	s, err := b.js.Stream(ctx, list[i].Stream)
	if err != nil {
		return err
	}
	of := strings.TrimSuffix(list[i].subject, kindAside)
	if drop {
		return s.Purge(ctx, jetstream.WithPurgeSubject(of+"*"))
	}
	m, err := s.GetLastMsgForSubject(ctx, of+kindEnd)
	if err != nil {
		return err
	}
	if _, err := b.js.Publish(ctx, m.Subject, m.Data); err != nil {
		return explained(err)
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(list[i].subject))
}

// subjects lists the subjects of a kind in a partition.
func (b *Bus) subjects(ctx context.Context, partition int, kind string) (map[string]uint64, error) {
	return b.filtered(ctx, partition, subject(partition, "*", "*", "*", kind))
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
