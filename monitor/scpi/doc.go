// Package scpi is a client for instruments that speak SCPI (IEEE 488.2) over
// TCP, a serial line or USBTMC.
//
//	Client.Query / QueryBlock / Command ─▶ transport.Conn
//	   └─ after any time-out: desynchronised ─▶ drain ─▶ *CLS ─▶ *IDN? as remembered, else reconnect
//
// A reply is never believed because it is the next thing on the line: after an
// exchange that failed the link is brought back to a known state first. Blocks
// are read by their stated length, never up to a terminator.
package scpi
