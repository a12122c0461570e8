package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
)

// Errors that refusals wrap.
var (
	// ErrUnknown: who asks is not known, or not any more.
	ErrUnknown = errors.New("not signed in")
	// ErrDenied: who asks is known, and may not.
	ErrDenied = errors.New("not allowed")
	// ErrRegistry: who is known cannot be looked up now.
	ErrRegistry = errors.New("the list of tokens cannot be read")
)

// Kind is how somebody was known.
type Kind string

// The kinds.
const (
	ByToken       Kind = "token"
	ByCertificate Kind = "certificate"
	ByAccount     Kind = "account" // of this machine, at the other end of a unix socket
)

// Identity is who asks.
type Identity struct {
	// Name is the user that tasks and captures belong to. Two credentials of one name
	// are one user.
	Name string `json:"name"`
	Role Role   `json:"role"`
	By   Kind   `json:"by"`
	// ID is the token's id, the certificate's serial number in hexadecimal, or the
	// account's number.
	ID string `json:"id"`
	// Expires is when the credential does; zero for never.
	Expires time.Time `json:"expires,omitzero"`
}

// maxName is the longest name of a user, in bytes.
const maxName = 64

// CheckName refuses a name that cannot be shown, or that looks like two.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a name of %d bytes: want 1 to %d", len(name), maxName)
	}
	if err := measure.CheckText("name", name); err != nil {
		return err
	}
	for _, r := range name {
		if r == ' ' || r == '@' || r == '/' || r == ',' || r == '=' {
			return fmt.Errorf("name %q: %q cannot be in a user's name", name, r)
		}
	}
	return nil
}

type identityKey struct{}

// With returns a context of what somebody asks.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns who asks; false where nobody was asked who they are.
func From(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(identityKey{}).(Identity)
	return i, ok
}

// May refuses who has less than a role. Where nobody is asked who they are,
// everybody may.
func May(ctx context.Context, role Role) error {
	i, known := From(ctx)
	if !known || i.Role >= role {
		return nil
	}
	return i.less(role)
}

func (i Identity) less(role Role) error {
	if i.Role == Nobody {
		return fmt.Errorf("%w: this needs the role %v: %s", ErrUnknown, role, howTo)
	}
	return fmt.Errorf("%w: %s is %v, and this needs the role %v", ErrDenied, i.Name, i.Role, role)
}

// Own refuses to let anybody but its owner, or who has a role, touch a thing. What
// belongs to nobody belongs to that role alone.
func Own(ctx context.Context, what, owner string, over Role) error {
	i, known := From(ctx)
	switch {
	case !known || i.Role >= over || i.Name == owner && i.Role >= Measurer:
		return nil
	case i.Role < Measurer:
		return i.less(Measurer)
	case owner == "":
		return fmt.Errorf("%w: %s is nobody's by name; touching it needs the role %v, and %s is %v", ErrDenied, what, over, i.Name, i.Role)
	}
	return fmt.Errorf("%w: %s belongs to %s; touching it needs the role %v, and %s is %v", ErrDenied, what, measure.Printable(owner), over, i.Name, i.Role)
}

// User is the user that a measurement is for: who asks, whatever they say, unless
// they may speak for others.
func User(ctx context.Context, said string) string {
	if i, known := From(ctx); known && i.Role < Operator {
		return i.Name
	}
	return said
}
