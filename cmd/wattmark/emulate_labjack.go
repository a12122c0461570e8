package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/fault"
	"wattmark/monitor/emulator/labjackface"
	"wattmark/monitor/emulator/pace"
)

// labJackAddress is where an emulated LabJack listens: ports below 1024 are not for
// everybody. Its stream is 200 above, as 702 is to 502.
const labJackAddress = "127.0.0.1:5502"

// labJacks are the products by the model that is asked for.
var labJacks = map[string]float32{"": 7, "t7": 7, "t8": 8}

// emulateLabJack serves a T7 or a T8, which have two ports and no serial line.
func (a *app) emulateLabJack(ctx context.Context, b *board.Board, live *board.Live, f emulateFlags) error {
	if f.play != "" || f.link != "" {
		return withCode(exitUsage, errors.New("a LabJack is emulated on TCP and from the board: neither --play nor --link"))
	}
	product, ok := labJacks[strings.ToLower(f.model)]
	if !ok {
		return withCode(exitUsage, fmt.Errorf("--model %s: want t7 or t8", f.model))
	}
	if f.listen == "" {
		f.listen = labJackAddress
	}
	face, err := labjackface.New(b, pace.Real(live.Epoch), labjackface.Config{
		Seed: f.seed, Draw: f.imperfect, Product: product,
		Wrap: func(rw io.ReadWriteCloser) io.ReadWriteCloser { return fault.New(rw, f.faults) },
	})
	if err != nil {
		return err
	}
	registers, stream, err := listenPair(ctx, f.listen)
	if err != nil {
		return fmt.Errorf("emulate: %w: choose another --listen", err)
	}
	fmt.Fprintf(a.out, "labjack on tcp:%s, its stream on %s\nIn another terminal: wattmark monitor --instrument labjack --port tcp:%s\n",
		registers.Addr(), stream.Addr(), registers.Addr())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if f.gpu != "" {
			return servePlant(ctx, f.gpu, live)
		}
		return alternate(ctx, live, f.period)
	})
	g.Go(func() error { return face.Serve(ctx, registers, stream) })
	return g.Wait()
}

// listenPair listens on a port and the one 200 above.
func listenPair(ctx context.Context, address string) (registers, stream net.Listener, err error) {
	var c net.ListenConfig
	if registers, err = c.Listen(ctx, "tcp", address); err != nil {
		return nil, nil, err
	}
	host, port, err := net.SplitHostPort(registers.Addr().String())
	if err == nil {
		n, _ := strconv.Atoi(port)
		stream, err = c.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(n+200)))
	}
	if err != nil {
		_ = registers.Close()
		return nil, nil, err
	}
	return registers, stream, nil
}
