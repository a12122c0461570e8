// Package attribute shares the energy of a window among the kernels that ran in
// it.
//
// The rule: at each instant the power belongs in equal shares to the kernels that
// run then. Where none runs it is active idle between the first kernel's begin
// and the last one's end, and idle outside of those. Nothing is left over: the
// shares come to the window's energy.
//
// The power is the trapezoid rule's straight line between two scans, as in
// measure.Integrator. Memory grows with the number of distinct names, with the
// kernels that run at once and with the scans that one edge's uncertainty spans,
// never with the number of kernels or of scans.
package attribute
