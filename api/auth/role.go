package auth

import "fmt"

// Role is what somebody may do; each holds the ones before it.
type Role uint8

// The roles.
const (
	Nobody Role = iota // who does not say who they are
	Viewer
	Measurer
	Operator
	Admin
)

var roleNames = [...]string{"nobody", "viewer", "measurer", "operator", "admin"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// ParseRole reads a role's name; nobody is none.
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return Nobody, fmt.Errorf("no such role: %q: want viewer, measurer, operator or admin", s)
}

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) {
	if r < Viewer || r > Admin {
		return nil, fmt.Errorf("%v cannot be given to anybody", r)
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads the role's name.
func (r *Role) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRole(string(b))
	return err
}
