package kernels

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSourceSuitsTheGPU(t *testing.T) {
	for _, tc := range []struct {
		name         string
		major, minor int
		target       string
		naps         bool
	}{
		{"Maxwell", 5, 0, "sm_50", false},
		{"Pascal", 6, 1, "sm_50", false},
		{"Volta", 7, 0, "sm_70", true},
		{"Turing", 7, 5, "sm_75", true},
		{"Hopper", 9, 0, "sm_75", true},
		{"Blackwell", 12, 0, "sm_75", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, err := Source(tc.major, tc.minor)
			if err != nil {
				t.Fatal(err)
			}
			text := string(src)
			if !strings.Contains(text, ".target "+tc.target+"\n") {
				t.Errorf("target: got %q", text[:60])
			}
			if got := strings.Contains(text, "nanosleep"); got != tc.naps {
				t.Errorf("nanosleep: got %v, want %v", got, tc.naps)
			}
			if strings.Contains(text, "$") {
				t.Error("a placeholder was left in")
			}
			if text[len(text)-1] != 0 || strings.Count(text, "\x00") != 1 {
				t.Error("the module must end with its only NUL")
			}
		})
	}
	if _, err := Source(3, 5); err == nil {
		t.Error("Kepler was accepted")
	}
}

func TestOwnModuleDeclaresWhatIsLaunched(t *testing.T) {
	got := map[string][]int{}
	for _, source := range []func(int, int) ([]byte, error){Source, MixSource} {
		src, err := source(9, 0)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Entries(src)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			got[e.Name] = e.Params
		}
	}
	want := map[string][]int{
		Marker: {8, 8, 8, 8, 8, 8, 8, 4},
		Memory: {8, 8, 8, 8}, Compute: {8, 8, 8, 8}, Half: {8, 8, 8, 8}, Mix: {8, 8, 8, 8, 4},
		Clock: {8}, Fill: {8, 8},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The driver compiles this text on machines that we never see: what a compiler
// would refuse at once is looked for here.
func TestOwnModuleIsWellFormed(t *testing.T) {
	src, err := Source(9, 0)
	if err != nil {
		t.Fatal(err)
	}
	mix, err := MixSource(9, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(src)+string(mix), "\x00", "")
	for i, c := range text {
		if c > 126 {
			t.Fatalf("byte %d is not ASCII, which PTX must be: %q", i, text[max(0, i-20):i+4])
		}
	}
	text = commentRE().ReplaceAllString(text, " ")
	declared := regexp.MustCompile(`\.reg\s+\.(\w+)\s+%(\w+)<(\d+)>`)
	used := regexp.MustCompile(`%(rd|r|f|p)(\d+)\b`)
	label := regexp.MustCompile(`(?m)^(\w+):`)
	branch := regexp.MustCompile(`bra\s+(\w+);`)
	for _, body := range strings.Split(text, ".entry")[1:] {
		name := strings.Fields(body)[0]
		limit := map[string]int{}
		for _, m := range declared.FindAllStringSubmatch(body, -1) {
			limit[m[2]] = atoi(t, m[3])
		}
		for _, m := range used.FindAllStringSubmatch(body, -1) {
			if n := atoi(t, m[2]); n >= limit[m[1]] {
				t.Errorf("%s uses %%%s%d: %d are declared", name, m[1], n, limit[m[1]])
			}
		}
		labels := map[string]bool{}
		for _, m := range label.FindAllStringSubmatch(body, -1) {
			if labels[m[1]] {
				t.Errorf("%s has label %s twice", name, m[1])
			}
			labels[m[1]] = true
		}
		for _, m := range branch.FindAllStringSubmatch(body, -1) {
			if !labels[m[1]] {
				t.Errorf("%s branches to %s, which is not there", name, m[1])
			}
		}
		if strings.Count(body, "{") != strings.Count(body, "}") {
			t.Errorf("%s: braces do not match", name)
		}
		checkRegisterTypes(t, name, body)
	}
}

// checkRegisterTypes holds every operand's width against its instruction's type.
func checkRegisterTypes(t *testing.T, name, body string) {
	t.Helper()
	class := map[string]string{
		"u32": "r", "b32": "r", "s32": "r", "u64": "rd", "b64": "rd", "f32": "f",
	}
	reg := regexp.MustCompile(`%(rd|r|f)\d+`)
	mem := regexp.MustCompile(`\[[^\]]*\]`)
	line := regexp.MustCompile(`(?m)^\s*(?:@!?%p\d+\s+)?((?:add|sub|mul\.lo|mad\.lo|min|max|and|or|xor|shr|shl|fma\.rn|setp\.\w+|selp|mov|ld|st|atom|nanosleep)[\w.]*)\s+([^;]*);`)
	for _, m := range line.FindAllStringSubmatch(body, -1) {
		op, args := m[1], m[2]
		parts := strings.Split(op, ".")
		want, ok := class[parts[len(parts)-1]]
		if !ok {
			t.Errorf("%s: %s: unknown type", name, op)
			continue
		}
		list := strings.Split(mem.ReplaceAllString(args, ""), ",")
		for i, a := range list {
			// The amount of a shift has 32 bits whatever is shifted.
			if (parts[0] == "shr" || parts[0] == "shl") && i == 2 {
				continue
			}
			for _, r := range reg.FindAllStringSubmatch(a, -1) {
				if r[1] != want {
					t.Errorf("%s: %s %s: %s is not of that type", name, op, args, r[0])
				}
			}
		}
		for _, a := range mem.FindAllString(args, -1) {
			if strings.Contains(a, "%") && !strings.Contains(a, "%rd") {
				t.Errorf("%s: %s %s: an address has 64 bits", name, op, args)
			}
		}
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

const userPTX = `
.version 7.0
.target sm_80
.address_size 64
/* a kernel
   .entry not_me() */
.visible .entry saxpy(
	.param .u64 saxpy_param_0, // x
	.param .u64 .ptr .global .align 4 saxpy_param_1,
	.param .f32 saxpy_param_2,
	.param .align 8 .b8 saxpy_param_3[24]
)
.maxntid 128, 1, 1
{ ret; }
.entry bare { ret; }
.visible .entry none() { ret; }
`

func TestFindReadsTheParameters(t *testing.T) {
	e, err := Find([]byte(userPTX), "saxpy")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Entry{Name: "saxpy", Params: []int{8, 8, 4, 24}}, e); d != "" {
		t.Error(d)
	}
	for _, tc := range []struct {
		name, source, entry, want string
	}{
		{"no such kernel", userPTX, "gemm", "it declares saxpy, bare, none"},
		{"several and none named", userPTX, "", "name one of saxpy, bare, none"},
		{"not PTX", "MZ\x00\x01", "x", "is this PTX text?"},
		{"no kernel", ".version 7.0\n.target sm_80\n", "x", "declares no kernel"},
		{
			"odd parameter", ".version 7.0\n.target sm_80\n.entry k(.param .texref t) { }", "k",
			"cannot read the parameter",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Find([]byte(tc.source), tc.entry)
			if !errors.Is(err, ErrPTX) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCheckLaunch(t *testing.T) {
	e := Entry{Name: "k", Params: []int{8, 8, 4}}
	if err := e.CheckLaunch(2, 1); err != nil {
		t.Error(err)
	}
	for _, n := range [][2]int{{2, 0}, {1, 2}, {3, 0}, {2, 2}, {0, 3}} {
		if err := e.CheckLaunch(n[0], n[1]); !errors.Is(err, ErrPTX) {
			t.Errorf("%d buffers, %d scalars: got %v", n[0], n[1], err)
		}
	}
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte(userPTX))
	src, _ := Source(9, 0)
	f.Add(src)
	f.Add([]byte(".version .target .entry k(.param .b8 a[0])"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := Entries(b)
		if (err == nil) != (len(all) > 0) {
			t.Fatalf("%d kernels and error %v", len(all), err)
		}
		for _, e := range all {
			for _, p := range e.Params {
				if p <= 0 {
					t.Fatalf("parameter of %d bytes", p)
				}
			}
		}
	})
}
