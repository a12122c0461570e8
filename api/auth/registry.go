package auth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/internal/flock"
	"golang.org/x/sys/unix"
)

// Registry looks up identities in a file that may change at any time: a revoked one
// is refused from the next call on. A file that has become unreadable lets
// nobody in.
type Registry struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex
	stamp stamp
	list  *List
	err   error // of reading it as it is now
}

// stamp distinguishes one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64      // differs in a file that replaced another
	mode     fs.FileMode // one that was opened to others is not read any more
}

// OpenRegistry reads the file of tokens. Errors wrap ErrRegistry.
func OpenRegistry(path string, log *slog.Logger) (*Registry, error) {
	r := &Registry{path: path, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	_, err := r.current()
	return r, err
}

// current returns the list as the file has it now.
func (r *Registry) current() (*List, error) {
	s, err := os.Stat(r.path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRegistry, err)
	}
	now := stamp{s.ModTime(), s.Size(), 0, s.Mode()}
	if st, ok := s.Sys().(*syscall.Stat_t); ok {
		now.inode = st.Ino
	}
	r.mu.Lock()
	// A failure is remembered with the stamp too: a broken file is read again only when it changes.
	l, err, fresh := r.list, r.err, now == r.stamp
	r.mu.Unlock()
	if fresh {
		return l, err
	}
	// A file that hangs delays only the call that reads it.
	l, err = ReadList(r.path)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && now != r.stamp {
		r.log.Error("nobody is let in until this was mended", "error", err)
	}
	r.stamp, r.list, r.err = now, l, err
	return l, err
}

// Token returns the owner of a token. Errors wrap ErrUnknown and ErrRegistry, and
// reveal nothing without the valid secret.
func (r *Registry) Token(text string, now time.Time) (Identity, error) {
	l, err := r.current()
	if err != nil {
		return Identity{}, err
	}
	id, secret, ok := parseToken(text)
	known := &Token{Hash: strings.Repeat("0", 64)} // compared too, so that time does not reveal which ids exist
	if t := l.token(id); t != nil {
		known = t
	}
	if !known.matches(secret) || !ok || known.ID == "" {
		return Identity{}, fmt.Errorf("%w: this token is not known here", ErrUnknown)
	}
	i := Identity{Name: known.Name, Role: known.Role, By: ByToken, ID: known.ID, Expires: known.Expires}
	return i, valid("this token", known.Expires, known.Revoked, now)
}

// Valid refuses an identity that expired, was revoked or has changed.
func (r *Registry) Valid(i Identity, now time.Time) error {
	if i.By == ByAccount {
		return nil
	}
	l, err := r.current()
	if err != nil {
		return err
	}
	// The list holds the certificates that were issued here; one that is missing was issued elsewhere
	// by the same CA, and is valid until it expires.
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

// Certificate is the entry of an issued certificate.
type Certificate struct {
	Serial  string    `json:"serial"` // in hexadecimal
	Name    string    `json:"name"`   // of the user, or the names of a server
	Role    Role      `json:"role,omitzero"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// List is the content of the file of tokens.
type List struct {
	Version      int           `json:"version"`
	Tokens       []Token       `json:"tokens"`
	Certificates []Certificate `json:"certificates"`
}

const listVersion = 1

// ReadList reads the file of tokens.
func ReadList(path string) (*List, error) {
	b, err := ReadSecret(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRegistry, err)
	}
	return parseList(path, b)
}

// parseList reads a list and refuses other versions, ids that repeat and tokens without
// hash, expiry, role or name. Errors wrap ErrRegistry.
func parseList(path string, b []byte) (*List, error) {
	l := &List{}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRegistry, path, err)
	}
	if l.Version != listVersion {
		return nil, fmt.Errorf("%w: %s is of version %d, this program knows %d", ErrRegistry, path, l.Version,
			listVersion)
	}
	seen := map[string]bool{}
	for _, t := range l.Tokens {
		switch {
		case t.ID == "" || seen[t.ID]:
			return nil, fmt.Errorf("%w: %s: token %q is there twice, or has no id", ErrRegistry, path, t.ID)
		case len(t.Hash) != 64 || t.Expires.IsZero() || t.Role < Viewer || CheckName(t.Name) != nil:
			return nil, fmt.Errorf("%w: %s: token %s is not whole", ErrRegistry, path, t.ID)
		}
		seen[t.ID] = true
	}
	return l, nil
}

// Change reads the list, lets f change it and puts it in its place, with others who
// change it kept away meanwhile. A list that is not there is made.
func Change(path string, f func(*List) error) error {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer flock.Close(lock)
	if err := flock.Wait(lock); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	l, err := ReadList(path)
	if errors.Is(err, fs.ErrNotExist) {
		l, err = &List{Version: listVersion}, nil
	}
	if err != nil {
		return err
	}
	if err := f(l); err != nil {
		return err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return Replace(path, append(b, '\n'), 0o600)
}

// Revoke revokes all that has an id, a serial number or a name, and returns the revoked.
func (l *List) Revoke(what string, now time.Time) (revoked []string) {
	now = now.UTC().Truncate(time.Second)
	for i := range l.Tokens {
		if t := &l.Tokens[i]; t.Revoked.IsZero() && (t.ID == what || t.Name == what) {
			t.Revoked = now
			revoked = append(revoked, fmt.Sprintf("token %s of %s", t.ID, t.Name))
		}
	}
	for i := range l.Certificates {
		if c := &l.Certificates[i]; c.Revoked.IsZero() && (c.Serial == what || c.Name == what) {
			c.Revoked = now
			revoked = append(revoked, fmt.Sprintf("certificate %s of %s", c.Serial, c.Name))
		}
	}
	return revoked
}

// token returns the token of an id; nil for none.
func (l *List) token(id string) *Token {
	i := slices.IndexFunc(l.Tokens, func(t Token) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	return &l.Tokens[i]
}

// A token is wm_<id>_<secret>. The id is looked up, and may be shown. The secret has
// 256 bits of chance, so that one SHA-256 of it can be kept: there is no dictionary
// to try against it, and a slow hash would only make each call slow.

const (
	tokenPrefix = "wm"
	idBytes     = 5
	secretBytes = 32
	maxToken    = 256
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token is the entry of a token.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Hash    string    `json:"sha256"` // of the secret, in hexadecimal
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// NewToken makes a token; text is all that its owner needs, and is kept nowhere.
func NewToken(name string, role Role, now time.Time, life time.Duration) (text string, t Token, err error) {
	if err := CheckName(name); err != nil {
		return "", t, err
	}
	if role < Viewer || role > Admin {
		return "", t, fmt.Errorf("%v cannot be given to anybody", role)
	}
	if life <= 0 {
		return "", t, fmt.Errorf("a token for %v: want more than 0", life)
	}
	var id [idBytes]byte
	var secret [secretBytes]byte
	_, _ = rand.Read(id[:])     // never fails
	_, _ = rand.Read(secret[:]) // never fails
	t = Token{ID: letters.EncodeToString(id[:]), Name: name, Role: role, Created: now.UTC().Truncate(time.Second)}
	t.Expires = now.UTC().Add(life).Truncate(time.Second)
	s := letters.EncodeToString(secret[:])
	t.Hash = digest(s)
	return strings.Join([]string{tokenPrefix, t.ID, s}, "_"), t, nil
}

// digest returns the SHA-256 of a secret in hexadecimal.
func digest(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// parseToken parts a token's text. It does not report the fault of a bad
// one: that would help guessing.
func parseToken(text string) (id, secret string, ok bool) {
	parts := strings.Split(text, "_")
	if len(text) > maxToken || len(parts) != 3 || parts[0] != tokenPrefix || parts[1] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// matches compares in a time that does not depend on the secret.
func (t *Token) matches(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash), []byte(digest(secret))) == 1
}

// valid refuses an expired or revoked credential.
func valid(what string, expires, revoked, now time.Time) error {
	switch {
	case !revoked.IsZero():
		return fmt.Errorf("%w: %s was revoked at %s", ErrUnknown, what, revoked.Format(time.RFC3339))
	case !expires.IsZero() && !now.Before(expires):
		return fmt.Errorf("%w: %s expired at %s: ask for a new one (wattmark auth token, wattmark auth cert)",
			ErrUnknown, what, expires.Format(time.RFC3339))
	}
	return nil
}
