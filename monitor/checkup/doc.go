// Package checkup looks at what a bench really delivers before anybody trusts
// it: live values, noise, the rate that is reached, losses, and signs of a
// wiring that cannot be right.
package checkup
