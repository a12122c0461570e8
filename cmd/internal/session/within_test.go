package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/monitor"
)

// A spool is one process's: a second monitor of it is a busy bench, and whoever looks for
// captures in it cannot reach it. When it is free its captures can be asked for.
func TestSpoolWithinAProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	w := Within{Bench: monitor.Bench{Instrument: absent{}, Setup: noSetup}, Spool: dir, Wait: -1}
	var at string
	err := w.Do(t.Context(), func(ctx context.Context, address string) error {
		at = address
		c, err := cli.DialMeter(ctx, address, monitorclient.Options{})
		if err != nil {
			return err
		}
		if _, err := c.Captures(ctx); err != nil || c.Address() != address || !cli.HasMonitor(ctx, address) {
			t.Errorf("%s: %v", c.Address(), err)
		}
		if err := w.Do(t.Context(), func(context.Context, string) error { return nil }); cli.ExitCode(err) != cli.ExitBusy {
			t.Errorf("a second monitor: %v", err)
		}
		asked := w
		asked.Wait = time.Millisecond
		err = asked.Do(t.Context(), func(context.Context, string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(process %d): waited 1ms", os.Getpid())) {
			t.Errorf("a wait that was asked for: %v", err)
		}
		if _, _, err := dialKept(t.Context(), address, monitorclient.Options{}, true); !errors.Is(err, monitorclient.ErrUnreachable) {
			t.Errorf("a spool in use: %v", err)
		}
		return c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	other := cli.SpoolScheme + "elsewhere" + dir
	for _, x := range []struct {
		address   string
		gone, can bool
	}{{at, false, true}, {at + "2", false, false}, {at + "2", true, true}, {other, true, false}} {
		c, end, err := dialKept(t.Context(), x.address, monitorclient.Options{}, x.gone)
		if (err == nil) != x.can || err != nil && !errors.Is(err, monitorclient.ErrUnreachable) {
			t.Errorf("%+v: %v", x, err)
		}
		if err == nil {
			_, err = c.Stop(t.Context(), "20260101-000000-00000000")
			if !errors.Is(err, monitorclient.ErrGone) {
				t.Errorf("%+v: a capture that is not there: %v", x, err)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// What is done within ends with its context, and the monitor after it.
func TestMonitorWithinOutlivesACancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := Within{Bench: monitor.Bench{Instrument: absent{}, Setup: noSetup}}
	err := w.DoBriefly(ctx, func(ctx context.Context, address string) error {
		c, err := cli.DialMeter(ctx, address, monitorclient.Options{})
		if err != nil {
			return err
		}
		cancel()
		<-ctx.Done()
		_, err = c.Captures(context.WithoutCancel(ctx))
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Error(err)
	}
}

// The path of a simulated GPU's socket without sim: is no GPU of the driver's.
func TestSocketIsNoSelector(t *testing.T) {
	if _, err := FindGPU("/tmp/gpu"); cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "sim:/tmp/gpu") {
		t.Error(err)
	}
}

// Where the user has no folder for state, the error names the variable that names another.
func TestNoStateFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	for _, home := range []string{"", file} {
		t.Setenv("HOME", home)
		if dir, err := StateFolder("spool"); err == nil || !strings.Contains(err.Error(), "Set XDG_STATE_HOME") {
			t.Errorf("HOME=%s: %q, %v", home, dir, err)
		}
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(t.TempDir(), "state"))
	if dir, err := StateFolder("spool"); err != nil || !filepath.IsAbs(dir) {
		t.Errorf("%q, %v", dir, err)
	}
}
