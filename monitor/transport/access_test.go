//go:build unix

package transport

import (
	"path/filepath"
	"strings"
	"testing"
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

func TestHolderOfAPort(t *testing.T) {
	port := filepath.Join(t.TempDir(), "port")
	if who, held := Holder(port); held {
		t.Errorf("%s has a port that nobody opened", who)
	}
	l, err := lockPort(port)
	if err != nil {
		t.Fatal(err)
	}
	if who, held := Holder(port); !held || !strings.HasPrefix(who, "process ") {
		t.Errorf("%q, %v: want this process", who, held)
	}
	l.release()
	if who, held := Holder(port); held {
		t.Errorf("%s has a port that was released", who)
	}
}
