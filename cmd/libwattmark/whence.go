//go:build cgo

package main

import (
	"context"
	"os"
	"runtime/debug"
	"sync"

	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
)

// whence is where the program runs. It is found out once for each directory that the
// program measures in, before a capture: asking git takes milliseconds.
// WATTMARK_PROVENANCE=none keeps nothing, =redact of the command line only the
// program's name.
func whence(ctx context.Context) *store.Provenance {
	how := os.Getenv("WATTMARK_PROVENANCE")
	if how == "none" {
		return nil
	}
	dir, _ := os.Getwd()
	found.Lock()
	defer found.Unlock()
	p, known := found.by[dir]
	if !known {
		p = measurement.CollectProvenance(ctx, libraryVersion(), measurement.CommandLine(how == "redact"))
		found.by[dir] = p
	}
	return p
}

var found = struct {
	sync.Mutex
	by map[string]*store.Provenance
}{by: map[string]*store.Provenance{}}

// libraryVersion names the source that the library was built from, where it is known.
func libraryVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "libwattmark+" + s.Value[:12]
			}
		}
	}
	return "libwattmark"
}
