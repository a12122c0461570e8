package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/labjackface"
	"wattmark/monitor/emulator/niface"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/nidaqmx/nipb"
	"wattmark/monitor/instrument/registry"
)

// counting is a sink that counts, and keeps nothing.
type counting struct {
	scans, lost uint64
	channels    int
}

// Block takes a block.
func (c *counting) Block(b *measure.Block) error {
	c.scans += uint64(b.Scans())
	c.channels = len(b.Counts)
	return nil
}

// Event takes an event.
func (c *counting) Event(e measure.Event) error {
	if e.Kind == measure.EventGap {
		c.lost += e.Scans
	}
	return nil
}

// meterRecording is what an instrument sent, and what its driver made of it.
type meterRecording struct {
	bytes   []byte
	driver  instrument.Instrument
	options any // of the driver
	inputs  instrument.Inputs
	counts  *counting
	began   time.Time     // before it was told to stream
	lasted  time.Duration // until the instrument was gone
}

// recordAll records all instruments, some at a time.
func recordAll(ctx context.Context, length time.Duration) ([]*meterRecording, error) {
	all := make([]*meterRecording, len(benchSubjects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, s := range benchSubjects {
		g.Go(func() (err error) {
			if all[i], err = s.record(ctx, length); err != nil {
				err = fmt.Errorf("record %s: %w", s.emulated, err)
			}
			return err
		})
	}
	return all, g.Wait()
}

// record lets a driver stream from an instrument over TCP for a time.
func (s *benchSubject) record(ctx context.Context, length time.Duration) (*meterRecording, error) {
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		return nil, err
	}
	if _, err := b.SetLoad(0, board.Compute); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &tap{fits: s.fits}
	address, ended, err := s.serve(ctx, b, t)
	if err != nil {
		cancel()
		return nil, err
	}
	r, err := s.take(ctx, address, length)
	cancel()
	if e := <-ended; err == nil && e != nil && !errors.Is(e, net.ErrClosed) {
		err = fmt.Errorf("the emulated instrument: %w", e)
	}
	if err != nil {
		return nil, err
	}
	r.lasted = time.Since(r.began)
	if r.bytes = t.longest(); len(r.bytes) == 0 || r.counts.scans == 0 {
		return nil, fmt.Errorf("nothing was recorded (%d scans)", r.counts.scans)
	}
	return r, nil
}

// serve puts the instrument on a port of this machine until ctx ends.
func (s *benchSubject) serve(ctx context.Context, b *board.Board, t *tap) (address string, ended chan error, err error) {
	ended = make(chan error, 1)
	clock := pace.Real(time.Now())
	if s.emulated == "labjack" {
		face, err := labjackface.New(b, clock, labjackface.Config{Seed: 1, Wrap: t.around})
		if err != nil {
			return "", nil, err
		}
		registers, stream, err := listenPair(ctx, "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		go func() { ended <- face.Serve(ctx, registers, stream) }()
		return "tcp:" + registers.Addr().String(), ended, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = "tcp:" + l.Addr().String()
	if s.emulated == "nidaqmx" {
		face, err := niface.New(b, clock, niface.Config{Seed: 1})
		if err != nil {
			return "", nil, errors.Join(err, l.Close())
		}
		server := grpc.NewServer()
		nipb.RegisterNiDAQmxServer(server, &niTap{face, t})
		context.AfterFunc(ctx, server.Stop)
		go func() { ended <- server.Serve(l) }()
		return address, ended, nil
	}
	face, err := newFace(s.emulated, b, clock.Epoch, emulateFlags{seed: 1})
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	go func() { ended <- serveOne(ctx, l, face, t) }()
	return address, ended, nil
}

// serveOne serves connections, one after another, until ctx ends.
func serveOne(ctx context.Context, l net.Listener, face firmware, t *tap) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err == nil {
			err = face.Run(ctx, t.around(c))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take opens the subject's driver and streams.
func (s *benchSubject) take(ctx context.Context, address string, length time.Duration) (*meterRecording, error) {
	d, o, err := newDriver(driverOf(s.emulated), address, s.options)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := d.Open(ctx); err != nil {
		return nil, err
	}
	streaming, stop := context.WithTimeout(ctx, length)
	defer stop()
	r := &meterRecording{driver: d, options: o, inputs: d.Inputs(), counts: &counting{}, began: time.Now()}
	return r, d.Stream(streaming, r.counts)
}

// newDriver makes a driver with its defaults, changed, and returns its options.
func newDriver(kind, address string, change func(any)) (instrument.Instrument, any, error) {
	k, err := registry.Lookup(kind)
	if err != nil {
		return nil, nil, err
	}
	o := k.Options()
	if change != nil {
		change(o)
	}
	d, err := k.New(registry.Env{}, address, o)
	return d, o, err
}

// optionsOf are the options of the driver that recorded.
func optionsOf[O any](r *meterRecording) (*O, error) {
	o, ok := r.options.(*O)
	if !ok {
		return nil, fmt.Errorf("the options are a %T", r.options)
	}
	return o, nil
}
