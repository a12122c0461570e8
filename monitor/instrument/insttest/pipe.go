package insttest

import (
	"context"
	"io"
	"net"
	"testing"

	"wattmark/monitor/emulator/fault"
)

// OnPipe puts a device on a net.Pipe, for virtual time: what it sends passes the
// faults and then each of the wraps. It returns the driver's end, and what ends
// the device and waits for that.
func OnPipe(t *testing.T, f Firmware, faults fault.Faults, wraps ...func(io.ReadWriteCloser) io.ReadWriteCloser) (mine net.Conn, end func()) {
	t.Helper()
	mine, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var line io.ReadWriteCloser = fault.New(theirs, faults)
	for _, wrap := range wraps {
		line = wrap(line)
	}
	go func() { defer close(ended); _ = f.Run(ctx, line) }()
	return mine, func() { cancel(); <-ended }
}

// Answering is the driver's end of a line on which something says the same to
// all that it hears; nothing, where that is empty.
func Answering(answer string) (mine net.Conn, end func()) {
	mine, theirs := net.Pipe()
	go func() {
		b := make([]byte, 64)
		for {
			if _, err := theirs.Read(b); err != nil {
				return
			}
			if answer != "" {
				_, _ = io.WriteString(theirs, answer)
			}
		}
	}()
	return mine, func() { _ = theirs.Close() }
}
