// Package monitor is the machine with the meter as a gRPC service: captures
// (monitor/capture) on one bench, kept in a spool (monitor/spool), served as
// wattmark.v1.MonitorService with health and reflection. docs/protocol.md tells
// the exchange step by step.
package monitor
