package transport

import (
	"context"
	"fmt"
	"time"

	"wattmark/monitor/instrument"
)

// Pump reads a stream that never ends by itself.
type Pump struct {
	// Size of the buffer; a read that fills it means that more is waiting.
	Size int
	// Quiet is how long the line may say nothing before Rest is called, again and
	// again; after Silence the device counts as lost.
	Quiet, Silence time.Duration
	// Take gets what one read brought; it must not keep it.
	Take func(b []byte, full bool) error
	// Rest delivers what is held back while the line is quiet.
	Rest func() error
	// Finish delivers what is left when the line fails. It is not called when ctx
	// ends: the caller then has a device to stop.
	Finish func() error
}

// Run reads until ctx ends, the line fails or falls silent (ErrSilent), or one
// of the functions returns an error.
func (p Pump) Run(ctx context.Context, c Conn) error {
	buf := make([]byte, p.Size)
	silent := time.Duration(0)
	for {
		n, err := ReadWithin(ctx, c, buf, p.Quiet)
		switch {
		case err != nil && Ended(err):
			return err
		case err != nil:
			if ferr := p.Finish(); ferr != nil {
				return ferr
			}
			return err
		case n == 0:
			if silent += p.Quiet; silent >= p.Silence {
				return fmt.Errorf("%w: the stream fell silent for %v (unplugged? power?)", instrument.ErrSilent, silent)
			}
			err = p.Rest()
		default:
			silent = 0
			err = p.Take(buf[:n], n == len(buf))
		}
		if err != nil {
			return err
		}
	}
}
