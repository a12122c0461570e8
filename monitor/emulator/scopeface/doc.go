// Package scopeface is what all emulated oscilloscopes share: probes on the
// emulated board's rails, a trigger, single and free-running acquisition into
// memory, and the converter. A family's face adds its command set on top and
// says how memory and rate follow from its settings.
//
//	board ─▶ Scope.Volts ─▶ trigger, acquisition ─▶ Scope.Codes ─▶ a face's blocks
package scopeface
