//go:build !unix

package transport

import "os"

// AccessHint says what to do about a device that this user may not open.
func AccessHint(path string) string { return "ask the administrator for access to " + path }

// Accessible tells whether a device is there; the system tells the rest when it
// is opened.
func Accessible(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Holder is not known here: the system itself keeps a second program out.
func Holder(string) (who string, ok bool) { return "", false }
