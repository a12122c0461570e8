// Package hostsocket is where the host daemon and the programs that measure
// through it meet: a unix socket, found the same way by both.
//
// The daemon's place is the first of these that fits, and programs look in all of
// them, in this order:
//
//	$XDG_RUNTIME_DIR/wattmark/host.sock    where the variable is set
//	/run/wattmark/host.sock                where the daemon may write that folder
//	$TMPDIR/wattmark-UID/host.sock         /tmp where TMPDIR is not set
//
// WATTMARK_HOST=unix:PATH names another one, WATTMARK_HOST=none says that there
// is no daemon.
package hostsocket
