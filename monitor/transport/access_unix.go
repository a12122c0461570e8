//go:build unix

package transport

import (
	"fmt"
	"io/fs"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// AccessHint says what to do about a device node that this user may not open.
func AccessHint(path string) string {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return "look at its owner and group with ls -l " + path
	}
	return hintOf(path, fs.FileMode(st.Mode).Perm(), st.Uid, st.Gid)
}

// hintOf is AccessHint for a node of that mode, owner and group.
func hintOf(path string, mode fs.FileMode, uid, gid uint32) string {
	group := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	if mode&0o060 == 0o060 && gid != 0 {
		return fmt.Sprintf("it belongs to group %s: join it with sudo usermod -aG %s $USER, then log in again", group, group)
	}
	return fmt.Sprintf("it belongs to user %d and group %s alone: let a udev rule give it to a group of yours, for example plugdev, MODE=\"0660\"", uid, group)
}

// Accessible tells whether this user may read and write a device node.
func Accessible(path string) bool { return unix.Access(path, unix.R_OK|unix.W_OK) == nil }
