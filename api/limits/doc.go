// Package limits keeps one peer of a service from taking what belongs to all:
// connections, calls, calls a second, the size of a request, and time. Monitor and
// host are served with the same.
//
// A peer is whoever shares an address, without the port, or on this machine an account,
// unless Config.Peer says otherwise. A connection belongs to a stranger until its first
// call that is let in; strangers have a small budget of their own, and little time. What
// is refused is refused before its request was read, with
// RESOURCE_EXHAUSTED; what is too slow, a request or the reader of a stream, ends
// with DEADLINE_EXCEEDED.
package limits
