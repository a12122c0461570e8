package wt300

import "testing"

// TestSettingsOfOthers: what Intel's yoko-tool asks and sets, in its order, with and without
// headers.
func TestSettingsOfOthers(t *testing.T) {
	f, _ := still(t, Config{})
	expect(t, f, ":INTEG:STAT?", ":INTEGRATE:STATE RESET", ":STAT:QMES ON", "", ":COMM:HEAD OFF", "")
	expect(t, f,
		"*OPT?", "NONE", ":SAMP:RATE?", "250.0E-03", ":SAMP:HOLD?", "0", ":INTEG:MODE?", "NORM", ":INTEG:TIM?", "0,0,0",
		":MATH?", "CFU1", ":COMM:LOCK?", "0", ":INP:FILT:FREQ?", "0", ":MEAS:MHOL?", "0", ":SYST:KLOC?", "0",
		":INP:WIR?", "P1W2", ":MEAS:AVER:TYPE?", "LIN", ":MEAS:AVER:COUN?", "8", ":SYST:COMM:COMM?", "WT300",
		":STAT:QMES?", "1")
	expect(t, f, ":SAMP:RATE 0.5", "", ":RATE?", "500.0E-03", ":SAMP:HOLD ON", "", ":HOLD?", "1",
		":INTEG:TIM 1,2,3", "", ":INTEG:TIM?", "1,2,3", ":INTEG:STAR", "", ":INTEG:STAT?", "START",
		":INTEG:STOP", "", ":INTEG:STAT?", "STOP", ":INTEG:RES", "", ":INTEG:STAT?", "RESET", ":MATH ADD", "", ":MATH?", "ADD")
	expect(t, f, "*CLS", "", ":INTEG:TIM 1,60,3", "", ":INTEG:TIM 1,2", "", ":INTEG:TIM 1,x,3", "", ":INTEG:TIM?", "1,2,3")
	expect(t, f, "*RST", "", ":COMM:HEAD OFF", "", ":INTEG:TIM?", "0,0,0", ":MATH?", "CFU1", ":RATE?", "250.0E-03")
}
