// Package dl binds the functions of a shared library to the fields of a Go
// struct, without cgo.
package dl

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Errors, wrapped with the library's or the symbol's name.
var (
	ErrLibrary = errors.New("library cannot be loaded")
	ErrSymbol  = errors.New("library lacks a function")
)

// Open loads the first library that can be loaded. It stays loaded: drivers
// keep threads of their own and do not survive being unloaded.
func Open(names ...string) (uintptr, error) {
	runtime.LockOSThread() // the text of an error is kept by thread
	defer runtime.UnlockOSThread()
	var first error
	for _, n := range names {
		h, err := purego.Dlopen(n, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return h, nil
		}
		first = cmp.Or(first, err)
	}
	return 0, fmt.Errorf("%w: %w", ErrLibrary, first)
}

// Bind sets every function field of the struct that table points to. The tag
// c names its symbols, the first found wins; a symbol list that ends in a "?"
// may be missing, and its field is then nil.
func Bind(lib uintptr, table any) error {
	v := reflect.ValueOf(table).Elem()
	for i := range v.NumField() {
		tag, ok := v.Type().Field(i).Tag.Lookup("c")
		if !ok {
			continue
		}
		names, optional := strings.CutSuffix(tag, "?")
		sym := Find(lib, strings.Split(names, ",")...)
		if sym == 0 {
			if optional {
				continue
			}
			return fmt.Errorf("%w: %s", ErrSymbol, names)
		}
		purego.RegisterFunc(v.Field(i).Addr().Interface(), sym)
	}
	return nil
}

// Load binds the first library that can be loaded to a new table. Where none can be loaded, the error wraps none and
// ends in remedy; where the library lacks a function, it wraps old and ends in update.
func Load[T any](names []string, none error, remedy string, old error, update string) (*T, error) {
	lib, err := Open(names...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; %s", none, err, remedy)
	}
	table := new(T)
	if err := Bind(lib, table); err != nil {
		return nil, fmt.Errorf("%w: %w; %s", old, err, update)
	}
	return table, nil
}

// Find returns the address of the first of the symbols that the library has, 0 for none.
func Find(lib uintptr, names ...string) uintptr {
	for _, n := range names {
		if sym, err := purego.Dlsym(lib, n); err == nil && sym != 0 {
			return sym
		}
	}
	return 0
}

// String copies a NUL-terminated C string; it is empty for nil, and cut after 4096 bytes.
func String(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for n < 4096 && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// CString copies a string to NUL-terminated memory of Go.
func CString(s string) *byte { return &append([]byte(s), 0)[0] }

// Text returns the string in a buffer that a C function filled, without its NUL.
func Text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
