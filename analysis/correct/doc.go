// Package correct makes power and energy of what a GPU's built-in sensor said.
//
// A sensor that follows the power slowly, as a capacitor is charged, is undone by
// its slope (Burtscher, Zecena and Zong, "Measuring GPU Power with the K20
// Built-in Sensor", section 5):
//
//	P_true(t_i) = P(t_i) + C · (P(t_i+1) − P(t_i−1)) / (t_i+1 − t_i−1)
//
// A sensor that shows the mean of a window is undone by least squares: with a
// smooth power, or with one that is steady while a known kernel runs. What the
// sensor never looked at is told as a bound, not as a number.
//
// All energies are linear in the readings, so noise, the constants' uncertainties
// and the static line are carried through exactly. The package is pure.
package correct
