package reference_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions/reference"
)

// The paper's own counts tell that nothing was keyed wrong: 32 rows on 4 GPUs at 2
// levels, without half precision on Maxwell; PAPI above MTSM in 232 of 254.
func TestTableIIsWhole(t *testing.T) {
	rows, pairs, above := map[string]bool{}, 0, 0
	for _, c := range reference.TableI() {
		rows[string(c.Group)+c.Row] = true
		if !slices.Contains(reference.GPUs(), c.GPU) {
			t.Errorf("%s: GPU %q", c.Row, c.GPU)
		}
		if c.PAPI == "" {
			if c.GPU != "Maxwell" || c.Group != instructions.Half || !slices.Equal(c.Notes, []string{"not measured"}) {
				t.Errorf("%+v is empty", c)
			}
			continue
		}
		pairs++
		p, err := strconv.ParseFloat(c.PAPI, 64)
		if err != nil {
			t.Fatal(err)
		}
		m, err := strconv.ParseFloat(c.MTSM, 64)
		if err != nil {
			t.Fatal(err)
		}
		if p > m {
			above++
		}
		// What is marked is what is irregular, and nothing else.
		if got := slices.Contains(c.Notes, "order"); got != (p < m) {
			t.Errorf("%+v: marked as out of order: %v", c, got)
		}
		if got := slices.Contains(c.Notes, "equal"); got != (p == m) {
			t.Errorf("%+v: marked as equal: %v", c, got)
		}
		if got := slices.Contains(c.Notes, "digits"); got != (decimals(c.PAPI) != 4 || decimals(c.MTSM) != 4) {
			t.Errorf("%+v: marked for its digits: %v", c, got)
		}
		if p <= 0 || p > 102 || m <= 0 || m > p*1.6 && p > 0.2 {
			t.Errorf("%+v: not what the table can hold", c)
		}
	}
	if len(rows) != 32 || pairs != 254 || above != 232 {
		t.Errorf("%d rows, %d pairs, %d of them PAPI above MTSM; want 32, 254, 232", len(rows), pairs, above)
	}
}

// Every figure is the paper's text's, in its order: all four GPUs at -O3, then all
// at -O0, PAPI before MTSM.
func TestTableIIsThePapers(t *testing.T) {
	files, err := filepath.Glob("../../../../shared/seeds/003*.txt")
	if err != nil || len(files) != 1 {
		t.Skip("the text of Arafa et al. is not beside the checkout (shared/seeds/003*.txt)")
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "Instruction Optimized Non-Optimized")
	if !found {
		t.Fatalf("%s has no Table I", files[0])
	}
	table, _, _ = strings.Cut(table, "\n")
	printed := regexp.MustCompile(`([0-9.]+)\s*,\s*([0-9.]+)`).FindAllStringSubmatch(table, -1)
	n := 0
	for _, c := range reference.TableI() {
		if c.PAPI == "" {
			continue
		}
		if n < len(printed) && (printed[n][1] != c.PAPI || printed[n][2] != c.MTSM) {
			t.Errorf("%s on %s at -O%d: %s, %s; the paper has %s, %s", c.Row, c.GPU, c.Level, c.PAPI, c.MTSM,
				printed[n][1], printed[n][2])
		}
		n++
	}
	if n != len(printed) {
		t.Errorf("%d pairs, the paper has %d", n, len(printed))
	}
}

// Every row of the table is an instruction of ours, on every GPU, at both levels,
// by both methods.
func TestEveryRowIsOurs(t *testing.T) {
	ours := map[string]bool{}
	for _, i := range instructions.Catalogue() {
		ours[string(i.Group)+i.Row] = true
	}
	for _, c := range reference.TableI() {
		if !ours[string(c.Group)+c.Row] {
			t.Errorf("%s: %s is no instruction of ours", c.Group, c.Row)
		}
	}
	for _, gpu := range reference.GPUs() {
		list, err := reference.Estimates(gpu)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]int{}
		for _, e := range list {
			kinds[strconv.Itoa(e.Level)+string(e.Method)]++
		}
		if len(kinds) != 4 || kinds["0papi"] != kinds["3mtsm"] || kinds["0papi"] != kinds["3papi"] ||
			kinds["0papi"] != kinds["0mtsm"] {
			t.Errorf("%s: %v", gpu, kinds)
		}
	}
	notes := reference.Notes("pascal")
	if got := notes[reference.Noted{Instruction: "mul24.lo.u32", Level: 0}]; !slices.Equal(got, []string{"equal"}) {
		t.Errorf("got %v", got)
	}
	if got := reference.Notes("Maxwell")[reference.Noted{Instruction: "add.f16", Level: 3}]; !slices.Equal(got,
		[]string{"not measured"}) {
		t.Errorf("got %v", got)
	}
}

func decimals(s string) int { return len(s) - 1 - strings.IndexByte(s, '.') }

// Figures that were read off the table by eye.
func TestEstimatesAreTheTable(t *testing.T) {
	volta, err := reference.Estimates("volta")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]float64{}
	for _, e := range volta {
		rows[e.Instruction+" "+string(e.Method)+" "+strconv.Itoa(e.Level)] = 1e6 * float64(e.Energy)
		if e.Layout != instructions.OneThread || e.Passes != 1 {
			t.Errorf("got %+v", e)
		}
	}
	for key, want := range map[string]float64{
		"add.s32 mtsm 3": 0.0012, "xor.b32 papi 3": 0.0064, "div.rn.f64 papi 0": 31.0212, "div.u32 mtsm 0": 20.2517,
		"fma.rn.f32 mtsm 3": 0.0014, "sub.cc.u32, subc.u32 mtsm 0": 0.952467, "bfind.u32 mtsm 0": 0.4582,
		"mul.f16 papi 0": 0.5027,
	} {
		if got := rows[key]; got < want*0.999999 || got > want*1.000001 {
			t.Errorf("%s: %v µJ, want %v", key, got, want)
		}
	}
	if _, err := reference.Estimates("Hopper"); err == nil || !strings.Contains(err.Error(), "Turing") {
		t.Errorf("got %v, want what there is", err)
	}
	maxwell, err := reference.Estimates("Maxwell")
	if err != nil || len(maxwell) >= len(volta) {
		t.Errorf("%d of Maxwell, %d of Volta (%v)", len(maxwell), len(volta), err)
	}
}
