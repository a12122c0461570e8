package sweep

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
)

// block runs one block of a kernel of this package's PTX, all threads in step:
// enough of PTX to see that the text does what it should without a GPU. Branches
// must go the same way in all threads.
type block struct {
	t       *testing.T
	params  map[string]uint64
	memory  []byte // addresses count from 0
	shared  map[string]uint64
	tile    []byte
	group   uint64
	groups  uint64
	threads []map[string]uint64
}

var (
	addressRE = regexp.MustCompile(`^\[(%?[\w.]+?)(?:\+(\d+))?\]$`)
	sharedRE  = regexp.MustCompile(`\.shared \.align 4 \.b8 (\w+)\[(\d+)\];`)
)

func (b *block) run(body string) {
	b.t.Helper()
	var code [][]string
	labels := map[string]int{}
	b.shared = map[string]uint64{}
	for line := range strings.Lines(body) {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		if m := sharedRE.FindStringSubmatch(line); m != nil {
			size, _ := strconv.Atoi(m[2])
			b.shared[m[1]] = uint64(len(b.tile))
			b.tile = append(b.tile, make([]byte, size)...)
			continue
		}
		if l, ok := strings.CutSuffix(line, ":"); ok {
			labels[l] = len(code)
			continue
		}
		line, ok := strings.CutSuffix(line, ";")
		if !ok || strings.HasPrefix(line, ".") {
			continue
		}
		code = append(code, strings.Fields(strings.ReplaceAll(line, ",", " ")))
	}
	b.threads = make([]map[string]uint64, Threads)
	for i := range b.threads {
		b.threads[i] = map[string]uint64{
			"%tid.x": uint64(i), "%ntid.x": Threads, "%ctaid.x": b.group, "%nctaid.x": b.groups,
		}
	}
	for pc, steps := 0, 0; pc < len(code); steps++ {
		if steps > 1e5 {
			b.t.Fatal("the kernel does not end")
		}
		f := code[pc]
		pc++
		if f[0] == "ret" {
			return
		}
		if p, ok := strings.CutPrefix(f[0], "@"); ok {
			taken := b.threads[0][p]
			for i := range b.threads {
				if b.threads[i][p] != taken {
					b.t.Fatalf("%v: threads part", f)
				}
			}
			if to, ok := labels[f[2]]; taken == 1 && ok {
				pc = to
			} else if !ok {
				b.t.Fatalf("%v: no such label", f)
			}
			continue
		}
		for i := range b.threads {
			if err := b.step(f, b.threads[i]); err != nil {
				b.t.Fatalf("%v: %v", f, err)
			}
		}
	}
}

// get is an operand's value.
func (b *block) get(r map[string]uint64, s string) (uint64, error) {
	if v, ok := r[s]; ok {
		return v, nil
	}
	if v, ok := b.shared[s]; ok {
		return v, nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s has no value", s)
	}
	return v, nil
}

// place is the memory that an operand in brackets points into.
func (b *block) place(r map[string]uint64, op, s string) ([]byte, error) {
	m := addressRE.FindStringSubmatch(s)
	if m == nil {
		return nil, fmt.Errorf("%s is no address", s)
	}
	at, err := b.get(r, m[1])
	if err != nil {
		return nil, err
	}
	if m[2] != "" {
		n, _ := strconv.ParseUint(m[2], 10, 64)
		at += n
	}
	mem := b.memory
	if strings.Contains(op, ".shared.") {
		mem = b.tile
	}
	if at%4 != 0 || at+4 > uint64(len(mem)) {
		return nil, fmt.Errorf("address %d lies outside of %d bytes", at, len(mem))
	}
	return mem[at : at+4], nil
}

func (b *block) step(f []string, r map[string]uint64) error {
	op := f[0]
	switch {
	case strings.HasPrefix(op, "bar."):
		return nil
	case strings.HasPrefix(op, "ld.param."):
		v, ok := b.params[strings.Trim(f[2], "[]")]
		if !ok {
			return fmt.Errorf("no parameter %s", f[2])
		}
		r[f[1]] = v
		return nil
	case strings.HasPrefix(op, "ld."):
		p, err := b.place(r, op, f[2])
		if err == nil {
			r[f[1]] = uint64(binary.LittleEndian.Uint32(p))
		}
		return err
	case strings.HasPrefix(op, "st."):
		p, err := b.place(r, op, f[1])
		if err == nil {
			binary.LittleEndian.PutUint32(p, uint32(r[f[2]]))
		}
		return err
	}
	var v [3]uint64
	for n, s := range f[2:] {
		var err error
		if v[n], err = b.get(r, s); err != nil {
			return err
		}
	}
	x, ok := compute(op, v)
	if !ok {
		return fmt.Errorf("unknown instruction")
	}
	r[f[1]] = x
	return nil
}

func compute(op string, v [3]uint64) (uint64, bool) {
	fl := func(x uint64) float32 { return math.Float32frombits(uint32(x)) }
	bits := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	truth := func(x bool) uint64 {
		if x {
			return 1
		}
		return 0
	}
	switch op {
	case "mov.u32", "mov.u64", "mov.f32", "cvta.to.global.u64":
		return v[0], true
	case "cvt.rn.f32.u64":
		return bits(float32(v[0])), true
	case "add.u64":
		return v[0] + v[1], true
	case "add.u32":
		return uint64(uint32(v[0] + v[1])), true
	case "sub.u64":
		return v[0] - v[1], true
	case "mad.lo.u32":
		return uint64(uint32(v[0]*v[1] + v[2])), true
	case "mul.wide.u32":
		return uint64(uint32(v[0])) * uint64(uint32(v[1])), true
	case "shl.b32":
		return uint64(uint32(v[0] << v[1])), true
	case "shr.u32":
		return uint64(uint32(v[0]) >> v[1]), true
	case "and.b32":
		return v[0] & v[1], true
	case "setp.ne.u64":
		return truth(v[0] != v[1]), true
	case "setp.lt.u32":
		return truth(uint32(v[0]) < uint32(v[1])), true
	case "add.rn.f32":
		return bits(fl(v[0]) + fl(v[1])), true
	case "mul.rn.f32":
		return bits(fl(v[0]) * fl(v[1])), true
	case "fma.rn.f32":
		return bits(float32(math.FMA(float64(fl(v[0])), float64(fl(v[1])), float64(fl(v[2]))))), true
	}
	return 0, false
}

// bodyOf cuts a kernel out of the text.
func bodyOf(t *testing.T, k Kernel) string {
	t.Helper()
	_, body, ok := strings.Cut(string(Source()), ".entry "+k.Entry()+"(")
	body, _, ended := strings.Cut(body, "\n}\n")
	if !ok || !ended {
		t.Fatalf("no kernel %s", k.Entry())
	}
	return body
}

// Both kernels leave what Go computes, for every block and any number of turns.
func TestKernelsCompute(t *testing.T) {
	const blocks = 2
	for _, k := range Kernels() {
		for _, loops := range []uint64{1, 2} {
			floats := k.floats(blocks)
			at := [3]uint64{0, 4 * floats[0], 4 * (floats[0] + floats[1])}
			memory := make([]byte, at[2]+4*floats[2])
			for operand := range 2 {
				for n, w := range pack(operand, floats[operand]) {
					binary.LittleEndian.PutUint64(memory[at[operand]+8*uint64(n):], w)
				}
			}
			for group := range uint64(blocks) {
				b := &block{
					t: t, memory: memory, group: group, groups: blocks,
					params: map[string]uint64{"p_a": at[0], "p_b": at[1], "p_c": at[2], "p_loops": loops, "p_zero": 0},
				}
				b.run(bodyOf(t, k))
			}
			for i := range floats[2] {
				got := math.Float32frombits(binary.LittleEndian.Uint32(memory[at[2]+4*i:]))
				if want := k.want(blocks, i); got != want {
					t.Fatalf("%s, %d turns: C[%d] = %v, want %v", k, loops, i, got, want)
				}
			}
		}
	}
}

// What the driver's compiler wants of the text.
func TestSource(t *testing.T) {
	src := Source()
	if src[len(src)-1] != 0 || strings.Count(string(src), "fma.rn.f32") != tile || strings.Contains(string(src), "$") {
		t.Error("the text is not whole")
	}
	for i, c := range src[:len(src)-1] {
		if c > 126 || c < 32 && c != '\n' && c != '\t' {
			t.Fatalf("byte %d is %#x: PTX is ASCII", i, c)
		}
	}
	for k, n := range map[Kernel]int{VectorAdd: 4, MatMul: 5} {
		e, err := kernels.Find(src, k.Entry())
		if err != nil || len(e.Params) != n {
			t.Errorf("%s: %+v, %v", k, e, err)
		}
		declared := map[string]bool{}
		body := bodyOf(t, k)
		for _, m := range regexp.MustCompile(`\.reg \.\w+ ([^;]+);`).FindAllStringSubmatch(body, -1) {
			for _, r := range strings.Split(m[1], ",") {
				declared[strings.TrimSpace(r)] = true
			}
		}
		for _, r := range regexp.MustCompile(`%[a-z_]+(\.[xyz])?`).FindAllString(body, -1) {
			if !declared[r] && !strings.Contains(r, ".") {
				t.Errorf("%s: %s is not declared", k, r)
			}
		}
	}
}
