//go:build !linux

package methods

import (
	"context"
	"time"
)

// nap waits as exactly as the runtime's timers do.
func nap(ctx context.Context, d time.Duration) { rest(ctx, d) }
