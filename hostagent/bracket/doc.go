// Package bracket is a measurement whose work is the caller's own code, step
// by step:
//
//	Start ─ the capture runs ─▶ Begin ─ start marker played ─▶ work, Mark … ─▶
//	End ─ stop marker played ─▶ Stopped ─ capture stopped ─▶ Wait ─ result
//
// Package measurement does the measuring, in a goroutine; the steps here let
// it go on. A step out of order is ErrOrder and changes nothing. Cancel at any
// step leaves a task with a state and a reason, and the bench free.
package bracket
