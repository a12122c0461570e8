// Package metrics counts calls for Prometheus: requests by method and code, how
// long they took, how many go on. What else a program has to tell it registers
// in the same Registry.
package metrics
