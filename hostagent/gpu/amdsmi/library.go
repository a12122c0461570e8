// Package amdsmi reads the power sensor of AMD's GPUs through AMD SMI (libamd_smi.so), found at run
// time. It follows the library's public header, amdsmi.h, and never ran on such a card.
package amdsmi

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
)

// status is an amdsmi_status_t.
type status uint32

const (
	success      status = 0
	notSupported status = 2
)

// handle is an amdsmi_socket_handle or an amdsmi_processor_handle.
type handle uintptr

// version is amdsmi_version_t. It had a year before major, minor and release up to ROCm 6.4, and
// has none since 7.0; a pointer to text follows.
type version struct {
	Numbers [4]uint32
	_       [2]uint64
}

// powerInfo is amdsmi_power_info_t, with room for more than any version writes.
type powerInfo struct {
	Words [8]uint32 // the powers are among them
	_     [56]uint64
}

// text stands for a struct whose first field is a string: amdsmi_driver_info_t and
// amdsmi_asic_info_t, the largest of which takes some 1000 bytes.
type text [4096]byte

// library is the part of AMD SMI that is used here, as functions, so that tests can replace them.
type library struct {
	Init         func(flags uint64) status                        `c:"amdsmi_init"`
	StatusString func(s status, text **byte) status               `c:"amdsmi_status_code_to_string"`
	Version      func(v *version) status                          `c:"amdsmi_get_lib_version"`
	Sockets      func(n *uint32, h *handle) status                `c:"amdsmi_get_socket_handles"`
	Processors   func(socket handle, n *uint32, h *handle) status `c:"amdsmi_get_processor_handles"`
	Type         func(h handle, kind *uint32) status              `c:"amdsmi_get_processor_type"`
	BDF          func(h handle, bdf *uint64) status               `c:"amdsmi_get_gpu_device_bdf"`
	UUID         func(h handle, n *uint32, s *byte) status        `c:"amdsmi_get_gpu_device_uuid"`
	Driver       func(h handle, version *text) status             `c:"amdsmi_get_gpu_driver_info"`
	ASIC         func(h handle, name *text) status                `c:"amdsmi_get_gpu_asic_info"`
	Power        func(h handle, p *powerInfo) status              `c:"amdsmi_get_power_info"`
	// of ROCm 6.4 alone
	PowerOf func(h handle, sensor uint32, p *powerInfo) status                 `c:"amdsmi_get_power_info_v2?"`
	Energy  func(h handle, n *uint64, microjoules *float32, ns *uint64) status `c:"amdsmi_get_energy_count"`

	name string // the version, for people
	at   int    // place of the current socket power in powerInfo; the average one follows
}

// Sentinel errors, wrapped with the call and the remedy.
var (
	// ErrNoLibrary: libamd_smi.so cannot be loaded.
	ErrNoLibrary = errors.New("no AMD SMI library")
	// ErrVersion: the layouts of the library's structs are not known here.
	ErrVersion = errors.New("AMD SMI library of an unknown version")
	// ErrNoDevice: AMD SMI does not list the GPU that is wanted.
	ErrNoDevice = errors.New("no such AMD GPU")
	// ErrCall: a call failed; the text has its amdsmi_status_t.
	ErrCall = errors.New("AMD SMI call failed")
)

// The library's name ends in its major version; /opt/rocm need not be on the loader's path.
var libraries = []string{
	"libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24", "libamd_smi.so", "/opt/rocm/lib/libamd_smi.so",
}

// system loads and initialises the library once. The library does not count its users, so that an end
// for one would be an end for all: there is none.
var system = sync.OnceValues(func() (*library, error) { return load(libraries...) })

// load binds and initialises a library. It fails with ErrNoLibrary or ErrVersion.
func load(names ...string) (*library, error) {
	l, err := dl.Load[library](names, ErrNoLibrary, "it comes with AMD's ROCm", ErrVersion, "ROCm 6.1 or later is needed")
	if err != nil {
		return nil, err
	}
	const gpus = 1 << 1 // AMDSMI_INIT_AMD_GPUS
	if err := l.check("amdsmi_init", l.Init(gpus)); err != nil {
		return nil, err
	}
	v := new(version)
	if err := l.check("amdsmi_get_lib_version", l.Version(v)); err != nil {
		return nil, err
	}
	return l, l.layout(v.Numbers) // of the library's version
}

// layout sets where the powers stand: at the struct's begin up to ROCm 6.3, behind a power of 64 bits
// since 6.4. The header promises another major number for every such change. It is ErrVersion for
// numbers of no release known here.
func (l *library) layout(n [4]uint32) error {
	l.name = fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2])
	switch {
	case n[0] == 24 && n[1] >= 5, n[0] == 25 && n[1] == 1: // a year, and ROCm 6.1 to 6.3
		l.at = 0
	case n[0] == 25 && n[1] == 25 && l.PowerOf != nil: // ROCm 6.4
		l.name = fmt.Sprintf("%d.%d.%d", n[1], n[2], n[3])
		l.at = 2
	case n[0] == 26: // ROCm 7
		l.at = 2
	default:
		return fmt.Errorf("%w: %s: the structs of ROCm 6.1 to 7 are known here", ErrVersion, l.name)
	}
	return nil
}

// check turns an amdsmi_status_t into an error with the library's text; nil for success.
func (l *library) check(call string, s status) error {
	if s == success {
		return nil
	}
	said := new(*byte)
	if l.StatusString(s, said) != success {
		*said = nil
	}
	return fmt.Errorf("%w: %s: %s (%d)", ErrCall, call, cmp.Or(dl.String(*said), "unknown error"), uint32(s))
}

// handles asks a call for its handles: for their number first.
func (l *library) handles(call string, ask func(n *uint32, first *handle) status) ([]handle, error) {
	n := new(uint32)
	if err := l.check(call, ask(n, nil)); err != nil || *n == 0 {
		return nil, err
	}
	out := make([]handle, *n)
	err := l.check(call, ask(n, &out[0]))
	return out[:min(len(out), int(*n))], err
}
