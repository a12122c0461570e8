// Package benchwatch watches the monitors of a host for all who look on through
// the host: one connection and one stream a monitor, however many viewers there
// are, and no stream while there are none.
//
//	Relay    all benches; Run keeps it going
//	bench    one monitor: asked once a second and watched while it has viewers
//	mailbox  what one viewer was not told yet: at most one State and one Moment a
//	         bench, however slow the viewer is
//
// A viewer that is slow gets the mean of what it missed, and is never waited for.
package benchwatch
