// Package hostlink is a measurement through the host daemon, both ends of it:
//
//	program                        daemon (wattmark host)
//	───────                        ──────────────────────
//	Measurement.Measure ──open──▶  Server: measurement.Measure with
//	                                 monitor, database and sensor of its own,
//	                                 and a Device that asks the program
//	the real Device  ◀─commands──    warm up, play a marker
//	the program's work ◀─command─    work
//	                  ──parts───▶
//	                  ◀─outcome──
//
// What Measurement.Measure does with a Device and a piece of work is what
// measurement.Measure does with them, from where its caller stands. Its types are
// the product's own; the generated ones stay inside.
package hostlink
