// Package freeport finds ports for servers that tests stop and start again at the same address.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The range lies below the ports that Linux gives to connections and to listeners at port 0
// (net.ipv4.ip_local_port_range, from 32768): nobody else takes a port while its server is away.
const (
	first = 20000
	last  = 32000
)

var given sync.Map // addresses returned by this process

// Address returns a TCP address of the loopback at which nothing listens, another one with each
// call. It fails after 100 ports that are taken. It may be called at the same time.
func Address() (string, error) {
	err := fmt.Errorf("all were given")
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.N(last-first))
		if _, twice := given.LoadOrStore(address, true); twice {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no free port between %d and %d: %w", first, last, err)
}
