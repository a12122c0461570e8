// Package transport carries bytes between a driver and its device.
//
//	Dial ─▶ Conn (serial port, TCP socket, any net.Conn)
//	Pump ─▶ reads a stream: what came, what a quiet line holds back, a silence
//	Backoff.Redial ─▶ the one place where a lost device is tried again
//
// Every call takes a context, and the context reaches the lowest I/O call: none
// blocks longer than its context allows. A link that is gone is told by an error
// that wraps instrument.ErrDisconnected, whatever the operating system called it.
package transport
