package wire

import (
	"fmt"

	"wattmark/api/wattmarkv1"
)

// Protocol is what a peer speaks. Peers of one major number understand each
// other; a larger minor number adds what the other side does not know.
type Protocol struct{ Major, Minor uint32 }

// Speaks is the protocol of this program; docs/protocol.md lists what each
// number brought.
var Speaks = Protocol{Major: 1, Minor: 1}

// unsaid is what a peer speaks that does not say it: versions travel since 1.1.
var unsaid = Protocol{Major: 1}

func (p Protocol) String() string { return fmt.Sprintf("%d.%d", p.Major, p.Minor) }

// Fits reports whether two peers understand each other.
func (p Protocol) Fits(q Protocol) bool { return p.Major == q.Major }

// ProtocolMessage is a Protocol as it travels.
func ProtocolMessage(p Protocol) *wattmarkv1.Protocol {
	return &wattmarkv1.Protocol{Major: p.Major, Minor: p.Minor}
}

// ParseProtocol reads what a peer says of itself; one that says nothing speaks 1.0.
func ParseProtocol(p *wattmarkv1.Protocol) Protocol {
	if p == nil {
		return unsaid
	}
	return Protocol{Major: p.Major, Minor: p.Minor}
}
