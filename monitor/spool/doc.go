// Package spool keeps captures on the monitor's disk until the host says that
// it has them safe.
//
//	<dir>/.lock                  one monitor a spool
//	<dir>/<capture id>/header.json   who, when, which bench: written once
//	<dir>/<capture id>/log           records, append-only (docs/protocol.md)
//	<dir>/<capture id>/reserve       room kept for the last words on a full disk
//
// A Store holds the captures, a Log is one capture's, a Reader walks a log
// while it is written. The writer is never held up by readers: it publishes
// how many bytes are whole records, and readers go no further.
package spool
