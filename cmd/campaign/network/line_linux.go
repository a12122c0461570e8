package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Run carries frames until ctx ends.
func (n *Network) Run(ctx context.Context) error {
	over := context.AfterFunc(ctx, func() {
		for _, f := range n.ends {
			_ = f.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer over()
	var both sync.WaitGroup
	var errs [2]error
	for _, s := range []Side{Monitor, Host} {
		both.Go(func() { errs[s] = n.carry(ctx, s) })
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

const (
	ethernetHead = 14
	frameRoom    = 1 << 16
)

// carry takes the frames that a machine sends to the other one.
func (n *Network) carry(ctx context.Context, from Side) error {
	room := make([]byte, frameRoom)
	in, out := n.ends[from], n.ends[from.other()]
	for {
		size, err := in.Read(room)
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENETDOWN):
			continue // told once, when the plug is pulled
		case err != nil:
			return fmt.Errorf("the line from the %v: %w", from, err)
		}
		send(n.now(), from, room[:size], func(frame []byte) {
			_, _ = out.Write(frame) // a machine without its plug takes none
		})
	}
}

// send does to a frame what the weather says.
func send(w Weather, from Side, frame []byte, put func([]byte)) {
	if w.Deaf[from.other()] || rand.Float64() < w.Lose {
		return
	}
	if len(frame) > ethernetHead && rand.Float64() < w.Garble {
		frame[ethernetHead+rand.IntN(len(frame)-ethernetHead)] ^= 1 << rand.IntN(8)
	}
	times := 1
	if rand.Float64() < w.Twice {
		times = 2
	}
	for range times {
		late := w.Delay
		if w.Jitter > 0 {
			late += rand.N(w.Jitter)
		}
		if late == 0 {
			put(frame)
			continue
		}
		own := append([]byte(nil), frame...)
		time.AfterFunc(late, func() { put(own) })
	}
}

// listen opens a packet socket on an interface: it reads what comes in there, and
// what is written goes out.
func listen(name string) (*os.File, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := uint16(unix.ETH_P_ALL)
	all = all<<8 | all>>8 // in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return nil, fmt.Errorf("a packet socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}),
	)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// whole makes an interface send frames as they go over a real cable, with their
// checksums and no longer than its MTU: between veth pairs the kernel leaves both out.
func whole(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{unix.ETHTOOL_STXCSUM, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // of the kernel's union, of which the pointer is a part
	}{data: unsafe.Pointer(&value)} // #nosec G103 -- the kernel takes an address
	copy(request.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 { // #nosec G103 -- as above
		return fmt.Errorf("checksums of %s: %w", name, errno)
	}
	return nil
}
