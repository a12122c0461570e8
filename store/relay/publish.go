package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"wattmark/store"
)

// The tags that a host's database keeps.
const (
	// TagReplicated says since when the streams have a task.
	TagReplicated = "replicated"
	// TagHeld says which monitor keeps a task's capture until the streams have it.
	TagHeld = store.TagHeld
)

// Publisher publishes the tasks of a database.
type Publisher struct {
	DB  *store.DB
	Bus *Bus
	// Program and version of who publishes.
	Program string
	// Window is how many messages may be under way at once; 32 when zero.
	Window int
	// Tell is told when publishing stops and goes on; nil for silence.
	Tell func(State)

	mu    sync.Mutex
	lines map[int]*line
	empty []byte // an empty database
}

// Published is what became of a task.
type Published struct {
	Task   store.TaskID
	Key    Key
	Chunks uint64
	Bytes  uint64 // of coded samples
	Rest   uint64 // bytes of all else, packed
	// Known: the streams had it whole already.
	Known bool
}

// Replicate publishes a task that has ended and marks it as replicated. When it returns
// without an error, the stream's replicas have acknowledged every message of it. It
// waits for a stream that does not acknowledge until the context ends.
func (p *Publisher) Replicate(ctx context.Context, id store.TaskID) (Published, error) {
	out, err := p.publish(ctx, id)
	if err == nil {
		err = p.DB.SetTags(ctx, id, map[string]string{TagReplicated: time.Now().UTC().Format(time.RFC3339)}, nil)
	}
	if err != nil {
		return out, fmt.Errorf("replicate task %d: %w", id, err)
	}
	return out, nil
}

func (p *Publisher) publish(ctx context.Context, id store.TaskID) (Published, error) {
	t, err := p.DB.Task(ctx, id)
	if err != nil {
		return Published{}, err
	}
	if t.State == store.Running {
		return Published{}, store.ErrRunning
	}
	s, err := p.sending(IdentityOf(&t))
	if err != nil {
		return Published{}, err
	}
	out := Published{Task: id, Key: s.end.Key}
	if out.Known, err = p.Bus.has(ctx, s.partition, s.source, s.end.Key); err != nil || out.Known {
		return out, err
	}
	s.reuse = p.Bus.index(ctx, s.partition, s.source)
	for {
		if err := s.run(ctx, func() error { return s.chunks(ctx, id) }, func() ([]byte, error) { return p.bare(ctx, id) }); err != nil {
			return out, err
		}
		if !s.again() {
			break
		}
	}
	out.Chunks, out.Bytes, out.Rest = s.end.Chunks, s.end.Bytes, s.packed
	return out, nil
}

func (p *Publisher) line(partition int) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines == nil {
		p.lines = map[int]*line{}
	}
	l := p.lines[partition]
	if l == nil {
		l = newLine(p.Bus.js, StreamName(partition), p.Bus.log, p.Tell)
		p.lines[partition] = l
	}
	return l
}

// bare makes a database of all of a task but its samples.
func (p *Publisher) bare(ctx context.Context, id store.TaskID) (content []byte, err error) {
	dir, err := store.TempDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "task.db")
	empty, err := p.emptyDatabase(ctx, filepath.Join(dir, "empty.db"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, empty, 0o600); err != nil {
		return nil, err
	}
	to, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	in, err := to.Import(ctx, p.DB, store.ImportOptions{Tasks: []store.TaskID{id}, KeepIDs: true, NoSamples: true})
	if err == nil && len(in.Tasks) != 1 {
		err = store.ErrRunning
	}
	if err == nil {
		err = to.SetTags(ctx, in.Tasks[0].To, nil, []string{TagReplicated, TagHeld})
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// emptyDatabase is made once: making one takes longer than filling it.
func (p *Publisher) emptyDatabase(ctx context.Context, path string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.empty != nil {
		return p.empty, nil
	}
	if err := store.NewBare(ctx, path); err != nil {
		return nil, err
	}
	var err error
	p.empty, err = os.ReadFile(path)
	return p.empty, err
}
