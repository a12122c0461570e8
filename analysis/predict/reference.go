package predict

// Reference is one row of Tables IV and V of the paper: errors of predicted time
// and energy, in percent.
type Reference struct {
	Device       string    `json:"device"`
	Kernel       string    `json:"kernel"`
	Time, Energy Published `json:"-"`
	// Irregular says what is odd about the row as it is printed; empty for nothing.
	Irregular string `json:"irregular,omitempty"`
}

// Published are errors as printed, in percent.
type Published struct{ Worst, Best, Average float64 }

// The paper's devices.
const (
	M2075  = "Tesla M2075"
	K20Xm  = "Tesla K20Xm"
	FigSMs = 14 // of both (Table I)
)

// References returns Tables IV and V.
func References() []Reference {
	out := []Reference{
		{M2075, "Backprop_K1", Published{1.33, 0.00938, 0.457}, Published{2.16, 0.0313, 0.836}, ""},
		{M2075, "Backprop_K2", Published{3.02, 0.27, 2.42}, Published{4.29, 0.00085, 1.23}, ""},
		{M2075, "BlackScholes", Published{6.64, 0.215, 2.2}, Published{5.80, 0.18, 1.74}, ""},
		{M2075, "Hotspot", Published{4.79, 0.0785, 1.3}, Published{5.39, 0.0220, 1.52}, ""},
		{M2075, "vectorAdd_1024", Published{3.60, 0.877, 3.41}, Published{7.62, 0.083, 1.47}, ""},
		{M2075, "vectorAdd_512", Published{11.84, 0.3, 4.83}, Published{16.82, 0.193, 5.19}, ""},
		{M2075, "vectorAdd_256", Published{20.76, 0.0693, 6.69}, Published{17.47, 0.0164, 6.86}, ""},
		{M2075, "matrixMul_1024", Published{4.12, 0.0145, 0.94}, Published{10.83, 0.0251, 1.65}, ""},
		{M2075, "matrixMul_256", Published{9.62, 0.240, 2.40}, Published{7.79, 0.007, 2.06}, ""},
		{K20Xm, "Backprop_K1", Published{8.88, 3.35, 4.10}, Published{5.85, 3.77, 4.16}, ""},
		{K20Xm, "Backprop_K2", Published{2.21, 0.249, 0.518}, Published{3.79, 1.39, 3.10}, ""},
		{K20Xm, "BlackScholes", Published{18.04, 0.292, 2.51}, Published{9.56, 0.14, 1.16}, ""},
		{K20Xm, "Hotspot", Published{16.46, 0.015, 3.52}, Published{7.81, 0.202, 2.83}, ""},
		{K20Xm, "vectorAdd_1024", Published{24.52, 0.009, 2.26}, Published{24.40, 0.05, 3.06}, ""},
		{K20Xm, "vectorAdd_512", Published{15.20, 1.0, 3.67}, Published{17.98, 0.169, 2.97}, ""},
		{K20Xm, "vectorAdd_256", Published{13.73, 0.02, 2.36}, Published{14.02, 0.04, 3.77}, ""},
		{K20Xm, "matrixMul_1024", Published{19.72, 0.917, 6.54}, Published{17.73, 0.864, 8.33}, ""},
		{K20Xm, "matrixMul_256", Published{13.69, 0.858, 5.42}, Published{15.52, 0.086, 5.95}, ""},
	}
	for i := range out {
		out[i].Irregular = out[i].check()
	}
	return out
}

// check tells what is odd about a row: an average outside of best and worst, or
// so near to the worst that nearly all predictions were that bad.
func (r Reference) check() string {
	for _, c := range []struct {
		what string
		p    Published
	}{{"time", r.Time}, {"energy", r.Energy}} {
		switch {
		case !(c.p.Best <= c.p.Average && c.p.Average <= c.p.Worst):
			return c.what + ": the average does not lie between best and worst"
		case c.p.Average > 0.75*c.p.Worst && c.p.Best < 0.3*c.p.Worst:
			return c.what + ": the average is next to the worst, though the best is small"
		}
	}
	return ""
}
