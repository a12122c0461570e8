//go:build linux

package spool

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// smallDisk is a file on a disk with so many bytes left.
type smallDisk struct {
	File
	left int
}

func (d *smallDisk) Write(p []byte) (int, error) {
	if len(p) <= d.left {
		d.left -= len(p)
		return d.File.Write(p)
	}
	n, err := d.File.Write(p[:d.left])
	d.left -= n
	if err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

// fill appends chunks until the log refuses them.
func fill(t *testing.T, l *Log) error {
	t.Helper()
	for no := range uint64(1 << 20) {
		if err := l.Chunk(testChunk(t, no, 300)); err != nil {
			return err
		}
		if err := l.Sync(); err != nil {
			return err
		}
	}
	t.Fatal("the disk was never full")
	return nil
}

func TestFullDiskKeepsWholeRecords(t *testing.T) {
	one := chunkRecordSize(testChunk(t, 0, 300))
	for _, room := range []int{0, 1, frameSize, one - 1, one, 3*one + 17} {
		t.Run(strconv.Itoa(room), func(t *testing.T) {
			var disk *smallDisk
			s := openStore(t, t.TempDir(), Options{OpenFile: func(name string) (File, error) {
				f, err := openFile(name)
				disk = &smallDisk{f, room}
				return disk, err
			}})
			l, err := s.Create(testHeader("c1"))
			if err != nil {
				t.Fatal(err)
			}
			if err := fill(t, l); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("error %v, want ENOSPC", err)
			}
			if err := l.Event(measure.Event{}); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("append after the failure: %v", err)
			}
			disk.left = reserveSize
			if err := l.Rescue(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.State(State{State: 5, Final: true}), l.Close()); err != nil {
				t.Fatal(err)
			}
			types, _ := all(t, l)
			if len(types) != room/one+1 || types[len(types)-1] != RecordState {
				t.Errorf("records %v in room for %d chunks", types, room/one)
			}
		})
	}
}

// TestFullFileSystem does the same on a real file system of 256 KiB.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := s.Create(testHeader("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t, l); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v, want ENOSPC", err)
	}
	before, _ := all(t, l)
	if len(before) < 100 {
		t.Errorf("only %d records fit", len(before))
	}
	if err := errors.Join(l.Rescue(), l.State(State{State: 5, Final: true}), l.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := s.open(filepath.Join(dir, "c1"))
	if err != nil || !f.Sealed || f.Torn != 0 {
		t.Errorf("opened again: %+v, %v", f, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c1", reserveName)); !os.IsNotExist(err) {
		t.Errorf("the reserve is still there: %v", err)
	}
}
