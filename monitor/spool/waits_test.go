package spool

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWaits(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if w, err := s.Waits(); err != nil || len(w) != 0 {
		t.Errorf("at first: %v, %v", w, err)
	}
	want := map[string]time.Duration{"a": time.Hour, "b": 1500 * time.Millisecond}
	for range 2 {
		if err := s.PutWaits(want); err != nil {
			t.Fatal(err)
		}
	}
	if w, err := s.Waits(); err != nil || !maps.Equal(w, want) {
		t.Errorf("%v, %v, want %v", w, err, want)
	}
	if found, err := s.Captures(); err != nil || len(found) != 0 {
		t.Errorf("it was taken for a capture: %v, %v", found, err)
	}
	path := filepath.Join(dir, waitsName)
	for _, bad := range []string{"", "[]", `{"a":-1}`, `{"a":1e300}`, `{"a":"x"}`} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if w, err := s.Waits(); err == nil {
			t.Errorf("%q: %v", bad, w)
		}
	}
	// A link that somebody put there is neither followed nor changed.
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.WriteFile(elsewhere, []byte(`{"a":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	if w, err := s.Waits(); err == nil {
		t.Errorf("a link was followed: %v", w)
	}
	if err := s.PutWaits(want); err == nil {
		t.Error("a link was replaced")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.PutWaits(want); err != nil {
		t.Fatal(err)
	}
	if err := s.PutWaits(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("an empty list is left as a file: %v", err)
	}
}

func FuzzWaits(f *testing.F) {
	f.Add([]byte(`{"20260101-000000-00000000":12.5}`))
	f.Add([]byte(`{"a":1e300}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := parseWaits(b)
		for id, d := range w {
			if err == nil && d < 0 {
				t.Errorf("%q: %v", id, d)
			}
		}
	})
}
