package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// python is Debian's own, which sees Debian's packages.
const python = "/usr/bin/python3"

// needSklearn skips the test where Debian's scikit-learn is absent, unless
// WATTMARK_REQUIRE_TOOLS=1 says that it must be there.
func needSklearn(t *testing.T) {
	t.Helper()
	out, err := exec.Command(python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('sklearn') is None)").CombinedOutput()
	if err == nil {
		return
	}
	reason := fmt.Sprintf("no scikit-learn (apt-get install python3-sklearn): %v\n%s", err, out)
	if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

type oracleCase struct {
	Method Method  `json:"method"`
	Alpha  float64 `json:"alpha"`
}

type oracleReply struct {
	Fits []struct {
		Weights, Coefficients []float64
		Intercept             float64
	}
	Held []float64
}

func askSklearn(t *testing.T, d *Data, alpha float64, cases []oracleCase) (r oracleReply) {
	t.Helper()
	q := map[string]any{"cases": cases, "alpha": alpha}
	var x [][]float64
	var y []float64
	var groups []string
	for _, row := range d.Rows {
		x, y, groups = append(x, row.X), append(y, float64(row.Power)), append(groups, row.Group)
	}
	q["x"], q["y"], q["groups"] = x, y, groups
	in, err := json.Marshal(q)
	ok(t, err)
	cmd := exec.CommandContext(t.Context(), python, "testdata/sklearn_oracle.py")
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	ok(t, json.Unmarshal(out, &r))
	return r
}

// scikit-learn finds the same weights, coefficients and intercepts, and the same
// estimates of applications that were left out.
func TestAgreesWithScikitLearn(t *testing.T) {
	coverage.Long(t)
	needSklearn(t)
	d := plane(rng(1), 60, 70, []float64{30, -0.012, 4e-5, 0, 1e-11, -2e-14}, 6)
	r := rng(2)
	for i := range d.Rows {
		d.Rows[i].X[3] = 0.7*d.Rows[i].X[1] + 50*d.Rows[i].X[0] + 20*r.NormFloat64() // nearly collinear
		d.Rows[i].X[5] = 0                                                           // never used
	}
	var cases []oracleCase
	for _, a := range []float64{1e-6, 0.1, 1, 10, 1000} {
		cases = append(cases, oracleCase{Ridge, a}, oracleCase{NonNegative, a}, oracleCase{Lasso, a})
	}
	cases = append(cases, oracleCase{Lasso, 1e6})
	reply := askSklearn(t, d, 2.5, cases)
	for i, c := range cases {
		f, err := Train(d, Options{Method: c.Method, Alpha: c.Alpha})
		ok(t, err)
		want := reply.Fits[i]
		what := fmt.Sprintf("%s α=%g", c.Method, c.Alpha)
		tolerance := 1e-8
		if c.Method != Ridge {
			tolerance = 1e-6 // it stops its descent there
		}
		near(t, what+" intercept", float64(f.Intercept), want.Intercept, tolerance)
		for j := range d.Counters {
			near(t, fmt.Sprintf("%s weight %d", what, j), float64(f.Weights[j]), want.Weights[j], tolerance)
			near(t, fmt.Sprintf("%s coefficient %d", what, j), f.Coefficients[j]*f.Max[j], want.Coefficients[j]*f.Max[j], tolerance)
		}
	}
	folds, err := Folds(d, ByGroup, 0, 0)
	ok(t, err)
	e, err := Evaluate(d, Options{Method: Ridge, Alpha: 2.5}, folds, nil)
	ok(t, err)
	for i, h := range e.Held {
		near(t, "held-out "+d.Rows[i].Name, float64(h.Power), reply.Held[i], 1e-9)
	}
}

// Plain least squares, where the counters are not collinear.
func TestLeastSquaresAgreesWithScikitLearn(t *testing.T) {
	needSklearn(t)
	d := plane(rng(9), 40, 70, []float64{30, -0.012, 4e-5}, 6)
	want := askSklearn(t, d, 1, []oracleCase{{LeastSquares, 0}}).Fits[0]
	for _, m := range []Method{LeastSquares, Ridge} { // ridge of α = 0 is the same
		f, err := Train(d, Options{Method: m})
		ok(t, err)
		near(t, "intercept", float64(f.Intercept), want.Intercept, 1e-10)
		for j := range d.Counters {
			near(t, "weight", float64(f.Weights[j]), want.Weights[j], 1e-10)
		}
	}
}
