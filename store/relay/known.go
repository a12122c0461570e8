package relay

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// has reports whether a task's end is in its stream. A replica that lags may not know
// it yet; the task is then published twice, and known by the stores.
func (b *Bus) has(ctx context.Context, partition int, source, key Key) (bool, error) {
	_, err := b.last(ctx, partition, subject(partition, b.by, source, key, kindEnd))
	if errors.Is(err, jetstream.ErrMsgNotFound) && b.by != anyone {
		_, err = b.last(ctx, partition, subject(partition, anyone, source, key, kindEnd))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		b.log.Debug("cannot tell whether a task is in its stream", "error", err)
	}
	return err == nil, nil
}

// last is the last message of a subject.
func (b *Bus) last(ctx context.Context, partition int, subject string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(partition))
	if err != nil {
		return nil, err
	}
	return s.GetLastMsgForSubject(ctx, subject)
}

// index are the chunks of a source that its monitor has published; nil where it has not,
// or nobody can tell: then they are sent, and the stream knows them.
func (b *Bus) index(ctx context.Context, partition int, source Key) map[uint64]indexed {
	m, err := b.last(ctx, partition, subject(partition, anyone, source, sourceItself, kindIndex))
	if errors.Is(err, jetstream.ErrMsgNotFound) && b.by != anyone {
		m, err = b.last(ctx, partition, subject(partition, b.by, source, sourceItself, kindIndex))
	}
	if err != nil {
		return nil
	}
	list, _, err := unpack(m.Data, m.Sequence)
	if err != nil {
		return nil
	}
	out := map[uint64]indexed{}
	for _, x := range list {
		out[x.no] = x
	}
	return out
}
