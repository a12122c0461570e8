package reference_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"wattmark/hostagent/instructions"
	"wattmark/hostagent/instructions/reference"
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
		"fma.rn.f32 mtsm 3": 0.0014, "sub.cc.u32, subc.u32 mtsm 0": 0.952467, "bfind.u32 mtsm 0": 0.4582, "mul.f16 papi 0": 0.5027,
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
