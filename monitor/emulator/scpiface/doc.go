// Package scpiface is the part that all emulated SCPI instruments share: a tree
// of commands with short and long forms, the error queue, the status registers
// of IEEE 488.2, and lines on which clients come and go.
//
//	Instrument (tree, queue, registers)
//	   ├─ Run: one client on a stream (TCP, pseudo-terminal)
//	   ├─ Serve: clients of a listener
//	   └─ Session: whole messages in and out, as USBTMC has them
package scpiface
