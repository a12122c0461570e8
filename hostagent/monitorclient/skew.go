package monitorclient

import (
	"errors"
	"fmt"

	"wattmark/api/wire"
	"wattmark/measure"
)

// ErrVersion: monitor and host do not understand each other.
var ErrVersion = errors.New("monitor and host are of incompatible versions")

// Protocol is what a peer speaks.
type Protocol = wire.Protocol

// Speaks is what this host speaks.
func Speaks() Protocol { return wire.Speaks }

// refuse tells of a monitor that speaks another language than this host.
func (c *Client) refuse(theirs Protocol, version string) error {
	if wire.Speaks.Fits(theirs) {
		return nil
	}
	older := "this host"
	if theirs.Major < wire.Speaks.Major {
		older = "the monitor"
	}
	return fmt.Errorf("%w: the monitor at %s is wattmark %s and speaks protocol %v, this host is wattmark %s and speaks %v: update %s",
		ErrVersion, c.address, named(version), theirs, named(c.o.Version), wire.Speaks, older)
}

// bridge says what is missing between two versions that understand each other;
// empty where nothing is.
func (c *Client) bridge(theirs Protocol, version string) string {
	switch ours := wire.Speaks; {
	case theirs.Major != ours.Major || theirs.Minor == ours.Minor:
		return ""
	case theirs.Minor < ours.Minor:
		return fmt.Sprintf("the monitor (wattmark %s, protocol %v) is older than this host (wattmark %s, protocol %v): what came later was done without",
			named(version), theirs, named(c.o.Version), ours)
	default:
		return fmt.Sprintf("the monitor (wattmark %s, protocol %v) is newer than this host (wattmark %s, protocol %v): what it adds was not used",
			named(version), theirs, named(c.o.Version), ours)
	}
}

// named is a version for a reader.
func named(version string) string {
	if version == "" {
		return "of an unknown version"
	}
	return measure.Printable(version)
}
