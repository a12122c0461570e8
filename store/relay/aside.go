package relay

import (
	"cmp"
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
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Aside is a task that a store could not take.
// It is published as JSON beside the task's end, in the same stream, under kindAside.
type Aside struct {
	Key    Key       `json:"key"`
	Stream string    `json:"stream"`
	User   string    `json:"user,omitempty"` // its publisher, or as in its end
	Name   string    `json:"name,omitempty"`
	Store  string    `json:"store"`
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq"` // of its end

	subject string
}

// errAway is wrapped where the cluster does not answer.
var errAway = errors.New("the cluster does not answer")

// ofContent marks an error of a task's own database, which is here as it was published, as one
// that comes each time; unless this machine lacks the room to read it.
// The errors listed are of this machine, or are marked as malformed already.
func ofContent(ctx context.Context, err error) error {
	var os syscall.Errno
	here := []error{ErrMalformed, store.ErrFull, store.ErrIO, store.ErrBusy, store.ErrCannotOpen}
	if ctx.Err() != nil || errors.As(err, &os) || isAny(err, here...) {
		return err
	}
	return malformed("its rows cannot be read: %v", err)
}

// isAny reports whether err wraps one of list.
func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

// tries is the number of tries of a task that cannot be stored for a reason that may not be its own. The pauses
// between them come to a minute: a message may be missing to a node that has just become the leader, until it has
// applied its log.
const tries = 4

// refused sets a task aside that cannot be stored, or has it tried again. It returns an error where the
// database takes no task at all. Order: a hopeless task is set aside at once; others only after tries, and
// only where the database takes another task, which TryTask finds out by inserting a row and rolling back.
func (t *taker) refused(ctx context.Context, m jetstream.Msg, key Key, why error) error {
	// The content of the stream does not change: neither does the outcome of another try.
	if !isAny(why, ErrMalformed, store.ErrCorrupt, store.ErrConflict) {
		if err := t.DB.TryTask(ctx); err != nil {
			_ = m.NakWithDelay(longestStep)
			return err
		}
		if t.failed[key]++; t.failed[key] < tries {
			// The count is kept in memory: after a restart the task gets its tries again.
			delay := t.Retry
			for range t.failed[key] - 1 {
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

// setAside publishes a note of a task that can never be stored, and ends its delivery. Its
// messages stay in the stream.
func (t *taker) setAside(ctx context.Context, m jetstream.Msg, key Key, why error) {
	meta, err := m.Metadata()
	if err != nil {
		t.log.Warn("a message without its place", "error", err)
		return
	}
	reason := why.Error()
	for _, x := range []struct {
		is       error
		sentence string
	}{
		{ErrMissing, "a part of it is no longer in the stream"},
		{ErrMalformed, "what was published is not a task that this store can read"},
		{store.ErrConflict, "the database has another task in its place"},
		{store.ErrCorrupt, "its samples are damaged"},
	} {
		if errors.Is(why, x.is) {
			reason = x.sentence + ": " + reason
			break
		}
	}
	// An end that cannot be parsed has neither user nor name; the subject still has the publisher.
	var end End
	_ = json.Unmarshal(m.Data(), &end) // it may be the fault
	a := Aside{
		Key: key, Stream: StreamName(t.partition), Seq: meta.Sequence.Stream, Store: t.Name, Why: reason,
		At: time.Now().UTC(), User: cmp.Or(parseSubject(m.Subject()).by.user(), end.User), Name: end.Name,
	}
	content, err := json.Marshal(a)
	if err == nil {
		// The id makes a repeated note of this store a duplicate, which the server drops.
		id := fmt.Sprintf("%s/a/%s/%d", m.Subject(), t.Name, a.Seq)
		_, err = t.Bus.js.Publish(ctx, strings.TrimSuffix(m.Subject(), kindEnd)+kindAside, content,
			jetstream.WithMsgID(id), jetstream.WithExpectStream(a.Stream))
	}
	if err != nil {
		t.log.Warn("a task cannot be stored, and the cluster did not take note of it",
			"key", key, "reason", why, "error", err)
		// Without the note the task would disappear from view: its delivery stays open.
		_ = m.NakWithDelay(longestStep)
		return
	}
	delete(t.failed, key)
	t.log.Error("a task cannot be stored: it was set aside", "key", key, "reason", why)
	// Term ends the deliveries to this store alone; other stores get the task.
	_ = m.TermWithReason("set aside")
}

// Asides returns the tasks that were set aside, newest last.
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

// asides returns the tasks that were set aside in a partition, at most so many.
func (b *Bus) asides(ctx context.Context, partition, most int) (out []Aside, err error) {
	keys, err := b.subjects(ctx, partition, "*", "*", kindAside)
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
		// The texts were published by any user of the cluster and go to terminals.
		a.User, a.Name, a.Why = measure.Printable(a.User), measure.Printable(a.Name), measure.Printable(a.Why)
		if _, err := a.Key.bytes(); err != nil { // its end bore none
			a.Key = Key(fmt.Sprintf("message-%d", a.Seq))
		}
		out = append(out, a)
	}
	return out, nil
}

// ErrNotAside is wrapped where no such task was set aside.
var ErrNotAside = errors.New("no such task was set aside")

// Again offers a task that was set aside to all stores anew, or, with drop, removes it from the stream.
// Order of steps: the end is published anew, and then the note is removed; interrupted between the two, the
// task is offered and still listed.
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
		// All subjects of the task: rest, end and notes. The samples belong to their source, see Free.
		return s.Purge(ctx, jetstream.WithPurgeSubject(of+"*"))
	}
	m, err := s.GetLastMsgForSubject(ctx, of+kindEnd)
	if err != nil {
		return err
	}
	// A new sequence number: each store's consumer delivers it as a new message.
	if _, err := b.js.Publish(ctx, m.Subject, m.Data); err != nil {
		return explained(err)
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(list[i].subject))
}

// subjects returns the subjects of a publisher, source and kind in a partition, with their numbers of
// messages; "*" stands for all.
func (b *Bus) subjects(
	ctx context.Context, partition int, by publisher, source Key, kind string,
) (map[string]uint64, error) {
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject(partition, by, source, "*", kind)))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}
