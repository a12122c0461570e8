package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

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

// Token is what is kept of a token.
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

func digest(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

// parseToken parts a token's text. It says nothing of what is wrong with one: that is
// nobody's business who has none.
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

// valid refuses what has expired or was revoked.
func valid(what string, expires, revoked, now time.Time) error {
	switch {
	case !revoked.IsZero():
		return fmt.Errorf("%w: %s was revoked at %s", ErrUnknown, what, revoked.Format(time.RFC3339))
	case !expires.IsZero() && !now.Before(expires):
		return fmt.Errorf("%w: %s expired at %s: ask for a new one (wattmark auth token, wattmark auth cert)", ErrUnknown, what, expires.Format(time.RFC3339))
	}
	return nil
}

func (t *Token) identity() Identity {
	return Identity{Name: t.Name, Role: t.Role, By: ByToken, ID: t.ID, Expires: t.Expires}
}
