package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Printable returns an error's text without control characters other than line breaks: it
// may cite the content of a file or a device.
func Printable(err error) string {
	return strings.Join(lists.Map(strings.Split(err.Error(), "\n"), measure.Printable), "\n")
}

// Asked is the cause of a context that a signal cancelled.
type Asked struct{ Signal syscall.Signal }

func (a Asked) Error() string { return a.Name() + " received" }

// Name returns the name of the signal, as SIGTERM.
func (a Asked) Name() string { return unix.SignalName(a.Signal) }

// code returns the exit code of a shell for a process that the signal ended: 128 + number.
func (a Asked) code() int { return Signalled + int(a.Signal) }

// Is makes errors.Is(a, context.Canceled) true.
func (Asked) Is(target error) bool { return target == context.Canceled }

// Hangups holds whether SIGHUP is a request to reload instead of one to end. The context of
// UntilAsked holds it under HangupsKey.
type Hangups struct{ Reload atomic.Bool }

// HangupsKey is the context key of a *Hangups.
type HangupsKey struct{}

// UntilAsked returns a context that the first SIGINT, SIGTERM or SIGHUP cancels, with the
// cause Asked; and a SIGPIPE, if the standard output or error has no reader any more, as
// behind a pipe into head. A second SIGINT ends the process at once. A SIGHUP or SIGPIPE that
// the parent process has ignored, as nohup does, stays ignored; a SIGHUP that means reload
// (daemon.OnHangups) does not cancel. The function returned ends the handling of signals.
func UntilAsked(parent context.Context) (context.Context, func()) {
	h := new(Hangups)
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, HangupsKey{}, h))
	c := make(chan os.Signal, 4)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGPIPE} {
		if !signal.Ignored(s) {
			signals = append(signals, s)
		}
	}
	signal.Notify(c, signals...)
	go func() {
		for {
			select {
			case s := <-c:
				// A SIGPIPE of a broken connection is reported as the error of its write.
				if s == syscall.SIGHUP && h.Reload.Load() || s == syscall.SIGPIPE && !outputClosed() {
					continue
				}
				cancel(Asked{s.(syscall.Signal)})
				signal.Reset(os.Interrupt) // a second one ends the process at once
			case <-ctx.Done():
			}
			return
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		cancel(nil)
	}
}

// AskedPolitely reports whether SIGTERM cancelled ctx, as from a service manager: a running
// measurement may come to its end.
func AskedPolitely(ctx context.Context) bool {
	a, ok := context.Cause(ctx).(Asked)
	return ok && a.Signal == syscall.SIGTERM
}

// Interrupted returns the error of a command that a signal ended: one line, which includes
// the text kept about data that remain, with the exit code of the signal. nil if no signal
// cancelled ctx.
func Interrupted(ctx context.Context, kept string) error {
	var a Asked
	if !errors.As(context.Cause(ctx), &a) {
		return nil
	}
	return WithCode(a.code(), interruption{a, kept})
}

// interruption is the error of Interrupted.
type interruption struct {
	Asked
	kept string
}

// Error returns the line for the user: the signal, and what remains of the data.
func (i interruption) Error() string {
	return strings.TrimSuffix("interrupted by "+i.Name()+": "+i.kept, ": ")
}

// Unchanged is the text of Keep for a command that has changed nothing yet, as one that reads.
const Unchanged = "nothing was changed"

// Silently reports whether err needs no message: its only cause is that the standard output
// has no reader any more, and nothing was changed.
func Silently(err error) bool {
	var i interruption
	return errors.As(err, &i) && i.Signal == syscall.SIGPIPE && (i.kept == "" || i.kept == Unchanged)
}

// said converts a command's error to the one for the user. That of a command that a signal ended
// becomes Interrupted, unless it has an exit code of its own; a standard output without a reader
// counts as SIGPIPE, as in a shell, unless the measured program failed: its exit code has precedence.
// Damaged data has ExitDamaged and the way to what is sound.
func (a *App) said(ctx context.Context, err error) error {
	program, failed := errors.AsType[*measurement.ProgramError](err)
	out, ok := errors.AsType[*fs.PathError](err)
	if ok && out.Path == os.Stdout.Name() && errors.Is(out, syscall.EPIPE) {
		if failed {
			return program
		}
		gone := Asked{syscall.SIGPIPE}
		return WithCode(gone.code(), interruption{Asked: gone})
	}
	_, coded := errors.AsType[codedError](err) // as an interruption that was reported
	if err == nil || coded || failed {
		return err
	}
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, chunk.ErrCorrupt) {
		return WithCode(ExitDamaged,
			fmt.Errorf("%w\nList the damage: wattmark db check. Set it aside: wattmark db repair", err))
	}
	kept := a.kept
	if !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		kept = FirstLineOf(err) // another error, at about the time of the signal
	}
	return cmp.Or(Interrupted(ctx, kept), err)
}

// Keep notes what remains of the data if a signal ends the command: "no file was written". It is the end of the
// one line that the user then reads.
func (a *App) Keep(format string, args ...any) { a.kept = fmt.Sprintf(format, args...) }

// TrustFlags are the names of the flags that authenticate services and this client to them.
var TrustFlags = []string{"tls-ca", "tls-cert", "tls-key", "token-file"}

// AddTrust adds the flags of TrustFlags to fl.
func AddTrust(fl *pflag.FlagSet, c *auth.Client) {
	fl.StringVar(&c.CA, "tls-ca", "",
		"CA that monitors and hosts must have their certificate from; speaks TLS (also WATTMARK_TLS_CA)")
	fl.StringVar(&c.Cert, "tls-cert", "", "certificate that says who you are to them (also WATTMARK_TLS_CERT)")
	fl.StringVar(&c.Key, "tls-key", "", "its key (also WATTMARK_TLS_KEY)")
	fl.StringVar(&c.TokenFile, "token-file", "",
		"file with a token that says who you are (also WATTMARK_TOKEN_FILE; WATTMARK_TOKEN is the token itself)")
}

// TrustKey is the context key of an *auth.Client.
type TrustKey struct{}

// Trusting returns a context with the trust of services. It is read when a service is
// dialled: a configuration file may change it after the command line was parsed.
func Trusting(ctx context.Context, c *auth.Client) context.Context {
	return context.WithValue(ctx, TrustKey{}, c)
}

// Trust returns the options for a connection to an address: TLS and token from the context
// and the environment.
func Trust(ctx context.Context, address string) ([]grpc.DialOption, error) {
	c, ok := ctx.Value(TrustKey{}).(*auth.Client)
	if !ok {
		return nil, nil
	}
	o, err := c.FromEnv().DialOptions(address)
	return o, WithCode(ExitUsage, err)
}

// SpoolScheme begins the address of a monitor within a process: host and folder of its spool.
const SpoolScheme = "spool://"

// within is the context key of a monitor within this process, by its address. Its value connects to it.
type within string

// WithMonitor returns a context in which DialMeter reaches a monitor within this process.
func WithMonitor(ctx context.Context, address string, dial func(context.Context) (net.Conn, error)) context.Context {
	return context.WithValue(ctx, within(address), dial)
}

// HasMonitor reports whether address is that of a monitor within this process.
func HasMonitor(ctx context.Context, address string) bool { return ctx.Value(within(address)) != nil }

// DialMeter returns a client of a monitor: of one within this process, or of another with the
// context's trust. It does not connect yet.
func DialMeter(ctx context.Context, address string, o monitorclient.Options) (*monitorclient.Client, error) {
	if dial, ok := ctx.Value(within(address)).(func(context.Context) (net.Conn, error)); ok {
		o.Target = "passthrough:///within"
		o.Dial = append(o.Dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
		return monitorclient.Dial(address, o)
	}
	address = wire.WithPort(address, wire.MonitorPort)
	more, err := Trust(ctx, address)
	if err != nil {
		return nil, err
	}
	o.Dial = append(o.Dial, more...)
	return monitorclient.Dial(address, o)
}

// DialTasks returns a client of a host agent's task service, with the context's trust.
func DialTasks(ctx context.Context, address string) (*client.Client, error) {
	address = wire.WithPort(address, wire.HostPort)
	more, err := Trust(ctx, address)
	if err != nil {
		return nil, err
	}
	return client.Dial(address, more...)
}

// Plainly is the dial option for a connection without TLS; a later option may override it.
func Plainly() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

// outputClosed reports whether the standard output or standard error is a pipe or socket
// whose reader is gone.
func outputClosed() bool {
	fds := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	_, err := unix.Poll(fds, 0)
	return err == nil && (fds[0].Revents|fds[1].Revents)&(unix.POLLERR|unix.POLLHUP) != 0
}
