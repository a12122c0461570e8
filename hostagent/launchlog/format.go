// Package launchlog is the file in which the CUDA injection leaves the kernels
// that a program ran: one file a process, written while the program runs, read
// when it has ended. docs/format.md has its bytes.
//
// A log that was cut short (the program was killed) is read as far as it goes and
// says so: only its last entry, the count, makes it whole.
package launchlog

import (
	"errors"

	"wattmark/measure/marker"
)

// Sentinel errors, wrapped with where in the file.
var (
	// ErrNotLog: the file does not begin as a log does.
	ErrNotLog = errors.New("not a log of kernels")
	// ErrCorrupt: an entry that cannot be.
	ErrCorrupt = errors.New("log of kernels is damaged")
)

// magic begins a log, with the number of its format.
const magic = "wmlaunch\x01"

// The entries. Each begins with its tag.
const (
	tagName    = 'N' // length, bytes: the next name
	tagDevice  = 'D' // ordinal, 16 bytes of UUID
	tagKernel  = 'K' // see Writer.Kernel
	tagMarker  = 'M' // kind, edges, number of the first edge's chip, time after started, distances
	tagDropped = 'X' // records that CUPTI dropped since the last
	tagTrouble = 'T' // length, bytes: why there is nothing, or less
	tagYielded = 'Y' // time after started: CUPTI was given to the program's own profiler
	tagEnd     = 'E' // kernels written, reported by CUPTI, dropped
)

const (
	// maxText bounds a name or a message: what is longer is cut.
	maxText = 1 << 14
	// maxNames bounds the string table of one process.
	maxNames = 1 << 20
	// maxEdges bounds the edges of one marker, maxMarkers the markers of a process.
	maxEdges, maxMarkers = 1 << 12, 1 << 20
)

// Kernel is one execution of a kernel.
type Kernel struct {
	Name        uint32 // index into the names
	Start, End  int64  // ns since 1970 on the host's clock
	Device      uint32 // the process's CUDA ordinal
	Stream      uint32
	Correlation uint32 // the launch that it came from; graph nodes share one
	Graph       uint32 // id of the CUDA graph, 0 for none
	Grid, Block [3]uint32
}

// Marker is a marker that was played around one kernel in the process.
type Marker struct {
	Kind  marker.Kind
	First int     // chip that begins at the first edge
	Edges []int64 // ns since 1970 on the host's clock
}

// Process is what a log says beside its kernels.
type Process struct {
	PID     uint32
	CUPTI   uint32 // version of CUPTI's interface, as cuptiGetVersion says; 0 where it was not found
	Started int64  // ns since 1970
	Names   []string
	Devices map[uint32][16]byte // UUID by ordinal, where the driver told it
	Trouble []string
	Markers []Marker
	// Yielded is when the program's own profiler took CUPTI, ns since 1970: no kernel was
	// recorded from then on. 0 for never.
	Yielded int64
	// Kernels were written, Reported came from CUPTI as kernel records, Dropped were
	// lost within it. Whole is false for a log that ends without its count.
	Kernels, Reported, Dropped uint64
	Whole                      bool
}
