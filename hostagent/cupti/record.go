package cupti

import (
	"encoding/binary"
	"errors"
	"fmt"

	"wattmark/hostagent/launchlog"
)

// A kernel's record is CUpti_ActivityKernel4 and its successors: packed to four
// bytes, aligned to eight. Each version only adds at the end, so what is wanted
// here lies where version 4 (CUDA 9.0) put it:
//
//	kind 0, start 16, end 24, deviceId 40, streamId 48, grid 52, 56, 60,
//	block 64, 68, 72, correlationId 92, name 104, sharedMemoryExecuted 140
//
// Version 5 (CUDA 11.0) adds graphNodeId at 144 and graphId at 156; in 11.0
// itself those four bytes were padding. Read in NVIDIA's headers of CUDA 10.2
// to 12 and in its reference up to version 12 (CUDA 13.4).
const (
	offKind        = 0
	offStart       = 16
	offEnd         = 24
	offDevice      = 40
	offStream      = 48
	offGrid        = 52
	offBlock       = 64
	offCorrelation = 92
	offName        = 104
	offGraph       = 156

	sizeKernel4 = 144
	sizeKernel5 = 160
)

// Activity kinds that carry a kernel's record.
const (
	kindKernel           = 3
	kindConcurrentKernel = 10
)

// Interface versions, as cuptiGetVersion tells them.
const (
	versionKernel4 = 10 // CUDA 9.0
	versionKernel5 = 13 // CUDA 11.0
	versionGraphID = 14 // CUDA 11.1
)

// ErrVersion: a CUPTI whose records are not known.
var ErrVersion = errors.New("this CUPTI is too old")

// layout is what of a record is there.
type layout struct {
	size  int // bytes that must be there
	graph bool
}

func layoutOf(version uint32) (layout, error) {
	switch {
	case version < versionKernel4:
		return layout{}, fmt.Errorf("%w: its interface is %d, want %d (CUDA 9.0) or newer", ErrVersion, version, versionKernel4)
	case version < versionKernel5:
		return layout{size: sizeKernel4}, nil
	default:
		return layout{size: sizeKernel5, graph: version >= versionGraphID}, nil
	}
}

// decode reads a record. name is the address of its name in the process; ok is
// false for what is not a kernel, or is cut short. A kernel without time stamps
// (CUPTI could not collect them) has zeros for both.
func (l layout) decode(b []byte, k *launchlog.Kernel) (name uint64, ok bool) {
	if len(b) < l.size {
		return 0, false
	}
	le := binary.LittleEndian
	if kind := le.Uint32(b[offKind:]); kind != kindConcurrentKernel && kind != kindKernel {
		return 0, false
	}
	k.Start, k.End = int64(le.Uint64(b[offStart:])), int64(le.Uint64(b[offEnd:]))
	k.Device, k.Stream = le.Uint32(b[offDevice:]), le.Uint32(b[offStream:])
	for i := range 3 {
		k.Grid[i], k.Block[i] = le.Uint32(b[offGrid+4*i:]), le.Uint32(b[offBlock+4*i:])
	}
	k.Correlation, k.Graph = le.Uint32(b[offCorrelation:]), 0
	if l.graph {
		k.Graph = le.Uint32(b[offGraph:])
	}
	return le.Uint64(b[offName:]), true
}

// timed reports whether a record's time stamps can be.
func timed(k *launchlog.Kernel) bool { return k.Start > 0 && k.End >= k.Start }
