package auth

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// Registry looks up who is known, in a file that may change at any time: what was
// revoked is refused from the next call on. A file that has become unreadable lets
// nobody in.
type Registry struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	stamp stamp
	list  *List
	err   error // of reading it as it is now
}

// stamp tells one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
	mode     fs.FileMode // one that was opened to others is not read any more
}

// OpenRegistry reads the file of tokens. Errors wrap ErrRegistry.
func OpenRegistry(path string, log *slog.Logger) (*Registry, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{path: path, log: log}
	_, err := r.current()
	return r, err
}

// current returns the list as the file has it now.
func (r *Registry) current() (*List, error) {
	s, err := os.Stat(r.path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRegistry, err)
	}
	now := stamp{s.ModTime(), s.Size(), inode(s), s.Mode()}
	r.mu.Lock()
	l, err, fresh := r.list, r.err, now == r.stamp
	r.mu.Unlock()
	if fresh {
		return l, err
	}
	// A file that hangs holds up who asks for it, and nobody else.
	l, err = ReadList(r.path)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && now != r.stamp {
		r.log.Error("nobody is let in until this was mended", "error", err)
	}
	r.stamp, r.list, r.err = now, l, err
	return l, err
}

// Token says whose token this is. Errors wrap ErrUnknown and ErrRegistry; what has no
// valid secret is told nothing.
func (r *Registry) Token(text string, now time.Time) (Identity, error) {
	l, err := r.current()
	if err != nil {
		return Identity{}, err
	}
	id, secret, ok := parseToken(text)
	known := &Token{Hash: strings.Repeat("0", 64)} // compared too, so that time does not tell which ids there are
	if t := l.token(id); t != nil {
		known = t
	}
	if !known.matches(secret) || !ok || known.ID == "" {
		return Identity{}, fmt.Errorf("%w: this token is not known here", ErrUnknown)
	}
	return known.identity(), valid("this token", known.Expires, known.Revoked, now)
}

// Valid refuses an identity that no longer is what it was.
func (r *Registry) Valid(i Identity, now time.Time) error {
	if i.By == ByAccount {
		return nil
	}
	l, err := r.current()
	if err != nil {
		return err
	}
	if i.By == ByCertificate {
		for _, c := range l.Certificates {
			if c.Serial == i.ID {
				return valid("this certificate", i.Expires, c.Revoked, now)
			}
		}
		return valid("this certificate", i.Expires, time.Time{}, now)
	}
	t := l.token(i.ID)
	if t == nil {
		return fmt.Errorf("%w: this token is not known any more", ErrUnknown)
	}
	if t.Name != i.Name || t.Role != i.Role {
		return fmt.Errorf("%w: this token is another's now, or of another role: sign in again", ErrUnknown)
	}
	return valid("this token", t.Expires, t.Revoked, now)
}
