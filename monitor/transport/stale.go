package transport

import (
	"context"
	"time"
)

// Stale discards what piled up on a line while nobody read, so that a stream
// begins with the present; at most limit bytes, for a line that never rests.
func Stale(ctx context.Context, c Conn, limit int) error {
	buf := make([]byte, 4096)
	for total := 0; total < limit; {
		n, err := ReadWithin(ctx, c, buf, time.Millisecond)
		if err != nil {
			return err
		}
		if total += n; n < len(buf) {
			return nil
		}
	}
	return nil
}
