//go:build !linux

package trial

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
)

// Network exists on Linux only.
type Network struct{}

// New fails.
func New(string) (*Network, error) {
	return nil, fmt.Errorf("%w: %s has none", ErrUnavailable, runtime.GOOS)
}

// Run fails.
func (*Network) Run(context.Context) error { return ErrUnavailable }

// Command fails when it is started.
func (*Network) Command(Side, string, ...string) *exec.Cmd { return &exec.Cmd{Err: ErrUnavailable} }

// Dial fails.
func (*Network) Dial(context.Context, Side, string) (net.Conn, error) { return nil, ErrUnavailable }

// SetLink fails.
func (*Network) SetLink(Side, bool) error { return ErrUnavailable }

// SetWeather does nothing.
func (*Network) SetWeather(Weather) {}

// Close does nothing.
func (*Network) Close() error { return nil }
