package relay

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"wattmark/store"
)

// Spoil removes the chunks of a task from its stream.
func (b *Bus) Spoil(ctx context.Context, key Key) error {
	p := key.Partition(b.partitions)
	s, err := b.js.Stream(ctx, StreamName(p))
	if err != nil {
		return err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject(p, "*", "*", key, kindEnd))
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subject(p, anyone, sourceOf(m.Subject), sourceItself, kindChunk)))
}

// Bare is what is published of a task beside its samples.
func (p *Publisher) Bare(ctx context.Context, id store.TaskID) ([]byte, error) {
	return p.bare(ctx, id)
}

// Forge publishes a task without samples, of which all else is given.
func (p *Publisher) Forge(ctx context.Context, i Identity, database []byte) (Key, error) {
	s, err := p.sending(i)
	if err != nil {
		return "", err
	}
	return s.end.Key, s.run(ctx, func() error { return nil }, func() ([]byte, error) { return database, nil })
}
