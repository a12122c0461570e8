package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Certificate is what is kept of a certificate that was issued.
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

func parseList(path string, b []byte) (*List, error) {
	l := &List{}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRegistry, path, err)
	}
	if l.Version != listVersion {
		return nil, fmt.Errorf("%w: %s is of version %d, this program knows %d", ErrRegistry, path, l.Version, listVersion)
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
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
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

// Revoke revokes what has an id, a serial number or a name, and returns what was.
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

func (l *List) token(id string) *Token {
	i := slices.IndexFunc(l.Tokens, func(t Token) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	return &l.Tokens[i]
}
