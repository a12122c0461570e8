// Package wire is where the types of measure meet the messages of
// wattmark.v1: conversions both ways, and a gRPC codec that moves chunks
// without copying their payload.
//
//	Setup, Marker, Event, Chunk …            measure type → message; cannot fail
//	ParseSetup, ParseMarker, ParseChunk …    message → measure type; refuses what
//	                                         cannot be, naming the field
//
// A peer may be anyone's program, so every Parse function treats its message
// as untrusted: a nil message, an unspecified enum, a number that is not
// finite, an index that is out of range, or a list that is absurdly long is an
// error that wraps ErrMessage.
package wire
