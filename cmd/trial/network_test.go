package trial

import (
	"errors"
	"time"
)

// The network connects two machines, monitor and host, by a line with chosen faults. Each machine is a network
// namespace of Linux.
//
// Each machine has one end of a veth pair. The other ends lie in a third namespace, where Network.Run carries each
// Ethernet frame from one to the other: it can lose, delay, repeat, reorder or garble frames (Weather). The kernel's
// netem could do the same, but many kernels are built without it. A link that is set down (SetLink) is a pulled plug:
// the machine itself sees it.

// ErrNoNetwork means that namespaces cannot be made here; it is wrapped with the reason.
var ErrNoNetwork = errors.New("network namespaces cannot be made here")

// Side is one of the two machines.
type Side uint8

// The machines.
const (
	MonitorSide Side = iota
	HostSide
)

func (s Side) String() string { return [...]string{"monitor", "host"}[s] }

// Address is the machine's IP address, the same in each network.
func (s Side) Address() string { return [...]string{"10.83.7.1", "10.83.7.2"}[s] }

func (s Side) other() Side { return 1 - s }

// Weather is the line's behaviour. The zero value carries each frame at once, in order, once.
type Weather struct {
	// Delay holds each frame back, Jitter by up to so much more, drawn for each frame: where it exceeds the gap between
	// two frames, the later one overtakes.
	Delay, Jitter time.Duration
	// Lose, Twice and Garble are a frame's probabilities to vanish, to arrive twice, and to arrive with one bit flipped
	// behind its Ethernet header.
	Lose, Twice, Garble float64
	// Deaf machines get no frames: a line that is cut in one direction.
	Deaf [2]bool
}
