// Package series turns scans whose number is known into blocks, and tells what
// was lost between them. It serves devices that count their scans, say how many
// they lost, or stamp them with a clock that does not wrap in practice; package
// assemble serves those whose short stamps leave whole turns open.
package series
