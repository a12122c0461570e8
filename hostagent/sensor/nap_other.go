//go:build !linux

package sensor

import (
	"context"
	"time"
)

// nap waits as exactly as the runtime's timers do.
func nap(ctx context.Context, d time.Duration) { _ = Pause(ctx, d) }
