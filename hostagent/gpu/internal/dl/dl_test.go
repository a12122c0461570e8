package dl

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl/dltest"
)

const source = `
#include <stdint.h>
#include <string.h>
int add_v2(int a, int b) { return a + b; }
double half(double x) { return x / 2; }
int fill(char *p, uint32_t n) { memset(p, 'x', n); return (int)n; }
static char word[] = "hello";
const char *greet(void) { return word; }
uint64_t many(uint64_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f, uint32_t g, uint32_t h, void *i, void **j, void **k)
{ return a + 10ull*b + 100ull*c + 1000ull*d + 10000ull*e + 100000ull*f + 1000000ull*g + 10000000ull*h + (i != 0) + *(uint32_t *)j[1] + (k != 0); }
`

func TestBind(t *testing.T) {
	lib, err := Open("libnowhere-to-be-found.so.1", dltest.Build(t, "libdl-test.so", source))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Add   func(a, b int32) int32                                                                             `c:"add_v3,add_v2"`
		Half  func(x float64) float64                                                                            `c:"half"`
		Fill  func(p *byte, n uint32) int32                                                                      `c:"fill"`
		Greet func() *byte                                                                                       `c:"greet"`
		Many  func(a uint64, b, c, d, e, f, g, h uint32, i uintptr, j *unsafe.Pointer, k *unsafe.Pointer) uint64 `c:"many"`
		New   func() int32                                                                                       `c:"not_yet?"`
		Other int
	}
	if err := Bind(lib, &f); err != nil {
		t.Fatal(err)
	}
	if f.Add(40, 2) != 42 || f.Half(3) != 1.5 {
		t.Error("numbers do not come through")
	}
	b := make([]byte, 4)
	if f.Fill(&b[0], 3) != 3 || string(b) != "xxx\x00" {
		t.Errorf("got %q", b)
	}
	if got := string(unsafe.Slice(f.Greet(), 5)); got != "hello" {
		t.Errorf("got %q", got)
	}
	// More arguments than registers, and an array of pointers, as cuLaunchKernel has.
	x, y := uint32(7), uint32(1)<<31
	list := []unsafe.Pointer{unsafe.Pointer(&x), unsafe.Pointer(&y)}
	if got := f.Many(1, 2, 3, 4, 5, 6, 7, 8, 1, &list[0], nil); got != 87654321+1+1<<31 {
		t.Errorf("got %d", got)
	}
	if f.New != nil {
		t.Error("a function that is not there was bound")
	}
	var g struct {
		F func() int32 `c:"missing_v2,missing"`
	}
	if err := Bind(lib, &g); !errors.Is(err, ErrSymbol) || !strings.Contains(err.Error(), "missing_v2") {
		t.Errorf("got %v", err)
	}
}

func TestOpenNamesTheLibrary(t *testing.T) {
	_, err := Open("libnowhere-1.so", "libnowhere-2.so")
	if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), "libnowhere-1.so") {
		t.Errorf("got %v", err)
	}
}
