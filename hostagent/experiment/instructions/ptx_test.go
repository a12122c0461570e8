package instructions

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range Catalogue() {
		if seen[i.Name] {
			t.Errorf("%s twice", i.Name)
		}
		seen[i.Name] = true
	}
	if len(seen) < 45 {
		t.Errorf("%d instructions, want 45 at least", len(seen))
	}
}

// Every row of Table I has an instruction.
func TestTableIsComplete(t *testing.T) {
	rows := map[string]bool{}
	for _, i := range Catalogue() {
		if i.Row != "" {
			rows[string(i.Group)+": "+i.Row] = true
		}
	}
	want := map[Group][]string{
		Integer: {"add / sub / min / max", "mul / mad", "{s} div", "{s} rem", "abs", "{u} div", "{u} rem"},
		Logic:   {"and / or / not / xor", "cnot", "shl / shr"},
		Single:  {"add / sub / min / max", "mul / mad / fma", "div"}, Double: {"add / sub / min / max", "div"},
		Half:      {"add / sub / mul"},
		Multi:     {"add.cc / addc / sub.cc", "subc", "mad.cc / madc"},
		Special:   {"rcp", "sqrt", "approx.sqrt", "rsqrt", "sin / cos", "lg2", "ex2", "copysign"},
		Intrinsic: {"mul24() / mad24()", "sad()", "popc()", "clz()", "bfind()"},
	}
	n := 0
	for g, list := range want {
		for _, r := range list {
			n++
			if !rows[string(g)+": "+r] {
				t.Errorf("no instruction for %s: %s", g, r)
			}
		}
	}
	if n != 32 {
		t.Errorf("%d rows", n)
	}
}

func TestProgramHasItsSteps(t *testing.T) {
	for _, i := range Catalogue() {
		for _, steps := range []int{5, 60} {
			with, err := i.PTX(Kernel{Steps: steps, Block: true, Capability: 90})
			if err != nil {
				t.Fatal(err)
			}
			without, err := i.PTX(Kernel{Steps: steps, Capability: 90})
			if err != nil {
				t.Fatal(err)
			}
			a, b := countLoop(with), countLoop(without)
			if a-b != steps*i.Ops {
				t.Errorf("%s: %d instructions in the loop, %d without the block: want %d between", i.Name, a, b,
					steps*i.Ops)
			}
			if strings.ContainsAny(strings.ReplaceAll(string(with), "\t", ""), "§") ||
				strings.Contains(string(with), "{x}") {
				t.Errorf("%s: something is not filled in", i.Name)
			}
		}
	}
}

func TestProgramIsRefused(t *testing.T) {
	i := Catalogue()[0]
	for _, k := range []Kernel{
		{Steps: 0, Capability: 90},
		{Steps: 7, Capability: 90},
		{Steps: 5000, Capability: 90},
		{Steps: 5, Capability: 35},
	} {
		if _, err := i.PTX(k); err == nil {
			t.Errorf("%+v is taken", k)
		}
	}
	fp8, err := Find("cvt f16x2 to e4m3x2*")
	if err != nil || len(fp8) != 1 {
		t.Fatal(fp8, err)
	}
	if _, err := fp8[0].PTX(Kernel{Steps: 5, Capability: 80}); err == nil || !strings.Contains(err.Error(), "8.9") {
		t.Errorf("%v: want the capability that it needs", err)
	}
}

// What keeps running for a second must not leave the range of its type.
func TestValuesStayAlive(t *testing.T) {
	for _, i := range Catalogue() {
		if i.Next == nil || (i.Group != Single && i.Group != Double) {
			continue
		}
		x := i.Result(200000, 5)
		v := math.Float64frombits(x)
		if i.Bits == 32 {
			v = float64(math.Float32frombits(uint32(x)))
		}
		if math.IsNaN(v) || v < 0.01 || v > 100 {
			t.Errorf("%s: %v after a million steps", i.Name, v)
		}
	}
}

func TestFindNamesWhatIsNotThere(t *testing.T) {
	if _, err := Find("add.s32", "add.q7"); err == nil || !strings.Contains(err.Error(), "add.q7") {
		t.Error(err)
	}
	some, err := Find("div.*", "div.s32")
	if err != nil || len(some) != 4 {
		t.Errorf("%d, %v", len(some), err)
	}
}

var ptxComment = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)

// countLoop counts the instructions between the loop's label and its branch, the branch included:
// statements that end in a semicolon and are no declaration.
func countLoop(ptx []byte) (n int) {
	text := ptxComment.ReplaceAllString(strings.TrimRight(string(ptx), "\x00"), "")
	_, text, _ = strings.Cut(text, "LOOP:")
	loop, _, found := strings.Cut(text, "bra LOOP;")
	if !found {
		return 0
	}
	for s := range strings.SplitSeq(loop, ";") {
		if s = strings.TrimSpace(s); s != "" && !strings.HasPrefix(s, ".") {
			n++
		}
	}
	return n // the branch's own guard is the last statement, without its semicolon
}
