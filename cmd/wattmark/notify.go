package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells the service manager how a service is: sd_notify(3), a datagram
// to the socket that NOTIFY_SOCKET names. Without one it does nothing.
type notifier struct {
	socket string
	every  time.Duration // how often the watchdog wants a sign; 0 for never
	log    *slog.Logger
}

// newNotifier reads what the service manager asks for, and keeps it from the
// programs that this one starts.
func newNotifier(log *slog.Logger) *notifier {
	n := &notifier{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.every = time.Duration(usec) * time.Microsecond / 2
	}
	for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(v)
	}
	return n
}

// tell sends a state: READY=1, STOPPING=1, STATUS=…
func (n *notifier) tell(state string) {
	if n.socket == "" {
		return
	}
	// net writes the leading @ of an abstract address as the zero byte that it stands for.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		_ = c.Close()
	}
	if err != nil {
		n.log.Warn("the service manager cannot be told", "state", state, "error", err)
	}
}

// watchdog gives signs of life for as long as alive says that there is life.
func (n *notifier) watchdog(ctx context.Context, alive func(context.Context) error) {
	if n.socket == "" || n.every <= 0 {
		return
	}
	tick := time.NewTicker(n.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		check, cancel := context.WithTimeout(ctx, n.every)
		err := alive(check)
		cancel()
		if err == nil {
			n.tell("WATCHDOG=1")
		} else if ctx.Err() == nil {
			n.log.Error("this service does not answer itself", "error", err)
		}
	}
}
