package relay

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Spoil removes the chunks of a task from its stream.
func (b *Bus) Spoil(ctx context.Context, key Key) error {
	p := key.Partition(b.partitions)
	s, err := b.js.Stream(ctx, StreamName(p))
	if err != nil {
		return err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject(p, "*", key, kindEnd))
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subject(p, sourceOf(m.Subject), sourceItself, kindChunk)))
}
