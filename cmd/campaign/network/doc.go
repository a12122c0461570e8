// Package network puts the two machines of a measuring place into network namespaces
// of Linux of their own, and a line between them whose behaviour can be chosen.
//
// Each machine has one end of a veth pair. The other ends lie in a third namespace,
// where a program carries each Ethernet frame from one to the other: it can lose,
// delay, repeat, overtake or garble them. So can the kernel's own netem, which many
// kernels are built without; this works in any. A link that is set down is one whose
// plug was pulled: the machine itself sees it.
package network

import (
	"errors"
	"time"
)

// ErrUnavailable: namespaces cannot be made here; the message says why.
var ErrUnavailable = errors.New("network namespaces cannot be made here")

// Side is one of the two machines.
type Side uint8

// The machines.
const (
	Monitor Side = iota
	Host
)

func (s Side) String() string { return [...]string{"monitor", "host"}[s] }

// Address is the machine's IP address, the same in each network.
func (s Side) Address() string { return [...]string{"10.83.7.1", "10.83.7.2"}[s] }

func (s Side) other() Side { return 1 - s }

// Weather is what the line does to frames. The zero value carries each at once, in
// order, once.
type Weather struct {
	// Delay is how long each frame takes, Jitter by how much longer it may, drawn
	// for each: where it is larger than the gap between two, the later overtakes.
	Delay, Jitter time.Duration
	// Lose, Twice and Garble are chances of a frame: to vanish, to arrive twice, to
	// arrive with a bit flipped behind its Ethernet header.
	Lose, Twice, Garble float64
	// Deaf machines get no frames: a line that is cut in one direction.
	Deaf [2]bool
}
