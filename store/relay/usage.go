package relay

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MostMessages is how many messages a user who publishes under the own name may have in the
// streams: they cost the servers memory, however small they are.
const MostMessages = 1 << 20

// Usage counts what such users have in the streams, from the heads of all messages. It is used by
// several goroutines.
type Usage struct {
	bus *Bus

	mu sync.Mutex
	of map[publisher]map[string]held // by subject
}

// held is what a subject holds.
type held struct{ messages, bytes uint64 }

// messageBytes is what a message takes beside its subject and its content.
const messageBytes = 128

// recountEvery is how often what was removed from the streams is looked for.
const recountEvery = 2 * time.Second

// NewUsage connects. Run must be called to count, which closes the connection.
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
	for p := range u.bus.partitions {
		wg.Go(func() {
			for wait := firstPause; pause(ctx, wait) == nil; wait = longestStep {
				if err := u.follow(ctx, p); err != nil && ctx.Err() == nil {
					u.bus.log.Debug("cannot count what users have in a stream", "stream", StreamName(p), "error", err)
				}
			}
		})
	}
	wg.Go(func() {
		for pause(ctx, recountEvery) == nil {
			u.recount(ctx)
		}
	})
	wg.Wait()
}

// follow adds what a stream has, and all that comes, until it fails.
func (u *Usage) follow(ctx context.Context, partition int) error {
	asking, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	c, err := u.bus.js.OrderedConsumer(asking, StreamName(partition), jetstream.OrderedConsumerConfig{HeadersOnly: true})
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
	u.forget(partition)
	for {
		m, err := list.Next()
		if err != nil {
			return err
		}
		size, _ := strconv.ParseUint(m.Headers().Get(nats.MsgSize), 10, 63)
		u.add(m.Subject(), size)
	}
}

func (u *Usage) add(subject string, size uint64) {
	by := byOf(subject)
	if by == anyone {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[by] == nil {
		u.of[by] = map[string]held{}
	}
	h := u.of[by][subject]
	u.of[by][subject] = held{h.messages + 1, h.bytes + size + uint64(len(subject)) + messageBytes}
}

// forget drops what was counted of a stream.
func (u *Usage) forget(partition int) {
	u.keep(func(by publisher, subject string, h held) (held, bool) { return h, partitionOf(subject) != partition })
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

// recount takes off what was removed. Messages of a subject are removed together.
func (u *Usage) recount(ctx context.Context) {
	u.mu.Lock()
	var users []publisher
	for by := range u.of {
		users = append(users, by)
	}
	u.mu.Unlock()
	for _, by := range users {
		for p := range u.bus.partitions {
			before := u.snapshot(by, p)
			there, err := u.bus.filtered(ctx, p, subject(p, by, "*", "*", "*"))
			if err != nil {
				continue
			}
			u.keep(func(of publisher, subject string, h held) (held, bool) {
				was, counted := before[subject]
				if of != by || !counted || there[subject] >= was.messages {
					return h, true
				}
				return held{h.messages - was.messages + there[subject], h.bytes - was.bytes + was.bytes/was.messages*there[subject]}, there[subject] > 0 || h.messages > was.messages
			})
		}
	}
}

func (u *Usage) snapshot(by publisher, partition int) map[string]held {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[string]held{}
	for subject, h := range u.of[by] {
		if partitionOf(subject) == partition {
			out[subject] = h
		}
	}
	return out
}

// Of is how many messages and bytes a user has in the streams.
func (u *Usage) Of(user string) (messages, bytes uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, h := range u.of[publisherOf(user)] {
		messages, bytes = messages+h.messages, bytes+h.bytes
	}
	return messages, bytes
}
