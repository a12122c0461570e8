//go:build linux

package transport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"wattmark/monitor/emulator/pty"
	"wattmark/monitor/instrument"
)

func TestHintNamesTheGroupToJoin(t *testing.T) {
	hint := hintOf("/dev/ttyACM0", 0o660, 0, 4294967000)
	if !strings.Contains(hint, "usermod -aG 4294967000") {
		t.Errorf("%q: want the group to join", hint)
	}
	if hint := hintOf("/dev/usbtmc0", 0o600, 0, 0); !strings.Contains(hint, "udev") {
		t.Errorf("%q: want a udev rule for a node that is root's alone", hint)
	}
	if hint := AccessHint(filepath.Join(t.TempDir(), "none")); !strings.Contains(hint, "ls -l") {
		t.Errorf("%q", hint)
	}
}

// Who may not open a device cannot keep others from it: what counts is a lock of the
// device itself, and the kernel says who holds it.
func TestHolderOfAPort(t *testing.T) {
	p, err := pty.OpenPort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	stranger, err := openLock(filepath.Join("/run/lock", "wattmark"+strings.ReplaceAll(p.Path(), "/", "-")+".lock"))
	if err == nil {
		defer os.Remove(stranger.Name())
		defer stranger.Close()
		if err := unix.Flock(int(stranger.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if who, held := Holder(p.Path()); held {
		t.Errorf("%s has a port that nobody opened", who)
	}
	c, err := Dial(t.Context(), p.Path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if who, held := Holder(p.Path()); !held || !strings.HasPrefix(who, fmt.Sprintf("process %d (", os.Getpid())) || !strings.Contains(who, " of user ") {
		t.Errorf("%q, %v: want this process", who, held)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if who, held := Holder(p.Path()); held {
		t.Errorf("%s has a port that was released", who)
	}
}

// A lock of an address is a file that anybody may make: a link or a pipe in its place
// harms nothing, and a number in it is believed by nobody.
func TestLockOfAnAddress(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "lock")
	if err := errors.Join(os.WriteFile(victim, []byte("1\n"), 0o644), os.Symlink(victim, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := openLock(path); err == nil {
		t.Error("a link was followed")
	}
	var locks [2]*portLock
	var errs [2]error
	for i := range locks {
		f, err := openLock(victim)
		if err != nil {
			t.Fatal(err)
		}
		locks[i], errs[i] = lock(f)
	}
	if errs[0] != nil || !errors.Is(errs[1], ErrBusy) || strings.Contains(errs[1].Error(), "process 1 ") {
		t.Errorf("%v", errs)
	}
	locks[0].release()
	if b, err := os.ReadFile(victim); err != nil || string(b) != "1\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// A pseudo-terminal that has gone leaves its number to another, which is nobody's meter:
// it is not opened until the link is made anew.
func TestANumberThatIsAnothers(t *testing.T) {
	link := filepath.Join(t.TempDir(), "meter")
	first, err := pty.OpenPort()
	if err == nil {
		err = os.Symlink(first.Path(), link)
	}
	if err != nil {
		t.Fatal(err)
	}
	dial := Dialer(link, Options{})
	for range 2 { // the same one, again and again
		c, err := dial(t.Context())
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	was := lineAt(first.Path())
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	var other *pty.Port
	for range 1 << 16 { // until the kernel's coarse clock has moved on
		p, err := pty.OpenPort()
		if err != nil {
			t.Fatal(err)
		}
		if p.Path() == first.Path() && lineAt(p.Path()) != was {
			other = p
			defer p.Close()
			break
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if other == nil {
		t.Skip("another program has the number")
	}
	if c, err := dial(t.Context()); !errors.Is(err, instrument.ErrDisconnected) || !strings.Contains(err.Error(), "another's") {
		t.Errorf("%v, %v", c, err)
	}
	if who, held := Holder(other.Path()); held {
		t.Errorf("%s has it", who)
	}
	if err := errors.Join(os.Remove(link), os.Symlink(other.Path(), link)); err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
