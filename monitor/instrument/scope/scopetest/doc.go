// Package scopetest checks, in tests, a family of oscilloscopes against its
// emulated face over a real TCP connection: the energy of a known load, the
// account of what is lost, every fault of the line, identity, and leaks.
package scopetest
