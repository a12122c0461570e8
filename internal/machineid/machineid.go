// Package machineid names the machine whose clocks a program reads.
package machineid

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"
)

// Boot is the same for all programs of one machine from its start to its end, containers included, and of no other;
// empty where the system does not say.
var Boot = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text) // the id itself is the machine's own
	return hex.EncodeToString(sum[:6])
})
