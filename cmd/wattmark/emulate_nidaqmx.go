package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/emulator/pace"
)

// niAddress is where NI's server listens unless told otherwise.
const niAddress = "127.0.0.1:31763"

// emulateNI serves NI's gRPC Device Server with a USB-6259, to any number of
// clients.
func (a *app) emulateNI(ctx context.Context, b *board.Board, live *board.Live, f emulateFlags) error {
	if d := f.faults; f.play != "" || f.link != "" || d.Drop+d.Duplicate+d.Corrupt > 0 || d.Fragment > 0 {
		return withCode(exitUsage, errors.New("nidaqmx is gRPC on TCP, from the board: neither --play nor --link, and no spoilt bytes"))
	}
	if f.listen == "" {
		f.listen = niAddress
	}
	face, err := niface.New(b, pace.Real(live.Epoch), niface.Config{Seed: f.seed, Draw: f.imperfect})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("emulate: %w: choose another --listen", err)
	}
	fmt.Fprintf(a.out, "nidaqmx on tcp:%s\nIn another terminal: wattmark monitor --instrument nidaqmx --port tcp:%s\n", l.Addr(), l.Addr())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if f.gpu != "" {
			return servePlant(ctx, f.gpu, live)
		}
		return alternate(ctx, live, f.period)
	})
	g.Go(func() error { return face.Serve(ctx, l) })
	return g.Wait()
}
