package labjack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
)

// Serve serves the registers on one listener and the stream on another until ctx
// ends. It returns nil then, and closes both.
func (f *Face) Serve(ctx context.Context, registers, stream net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer f.stopStream()
	stop := context.AfterFunc(ctx, func() { _, _ = registers.Close(), stream.Close() })
	defer stop()
	wg.Go(func() {
		defer cancel()
		_ = accept(stream, func(c net.Conn) { f.attach(c) })
	})
	err := accept(registers, func(c net.Conn) {
		wg.Go(func() {
			end := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer end()
			f.session(ctx, c)
		})
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// accept calls serve for every connection until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("emulated LabJack: %w", err)
		}
		serve(c)
	}
}

// attach takes a connection for the stream; the one before it is dropped.
func (f *Face) attach(c net.Conn) {
	var rw io.ReadWriteCloser = c
	if f.cfg.Wrap != nil {
		rw = f.cfg.Wrap(c)
	}
	f.stopStream()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target != nil {
		_ = f.target.Close()
	}
	f.target = rw
	backoff.Nudge(f.arrived)
}

// stopStream ends a stream that runs, and its connection.
func (f *Face) stopStream() {
	f.mu.Lock()
	cancel, stopped, target := f.cancel, f.stopped, f.target
	f.cancel, f.target = nil, nil
	f.mu.Unlock()
	if cancel == nil {
		if target != nil {
			_ = target.Close()
		}
		return
	}
	cancel()
	_ = target.Close() // which ends a blocked write
	<-stopped
}

// startStream begins to scan. It waits a moment for the stream's connection, which a driver may have made just now.
func (f *Face) startStream(ctx context.Context) error {
	moment, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.target == nil && moment.Err() == nil {
		f.mu.Unlock()
		select {
		case <-f.arrived:
		case <-moment.Done():
		}
		f.mu.Lock()
	}
	if f.target == nil || f.cancel != nil {
		return errors.New("no connection for the stream, or one that runs")
	}
	s, err := f.newScanner()
	if err != nil {
		return err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.stopped = make(chan struct{})
	target, stopped := f.target, f.stopped
	go func() {
		defer close(stopped)
		_ = s.run(ctx, target)
		_ = target.Close()
	}()
	return nil
}

// Statuses of a packet.
const (
	StatusRecovering = 2940
	StatusRecovered  = 2941
	StatusOverlap    = 2942
	StatusOverflow   = 2943
)

// scanner is one stream.
type scanner struct {
	f         *Face
	ain       []int
	converter []converter
	perPacket int     // scans
	step      float64 // ns a scan
	start     time.Duration
	scan      uint64
	tid       uint16
	rng       *rand.Rand
	power     [][]measure.Watt // by input: they are converted one after another
	out       []byte
	ends      bool
}

// newScanner reads the stream's registers.
func (f *Face) newScanner() (*scanner, error) {
	n, samples, rate := int(f.u32(regAddresses)), int(f.u32(regPerPacket)), f.f32(regScanRate)
	m := f.model
	if n < 1 || n > m.inputs || samples < n || samples > 512 || samples%n != 0 || !(rate > 0) || rate > m.each ||
		rate*float64(n) > m.all || f.u32(regTarget) != 1 || f.u32(regDataType) != 0 {
		return nil, errors.New("the stream is not set up")
	}
	s := &scanner{f: f, perPacket: samples / n, step: 1e9 / rate, rng: rand.New(rand.NewPCG(f.cfg.Seed, 0x6e6f697365))}
	for i := range uint16(n) {
		a := int(f.u32(regScanList+2*i)) / 2
		if a >= m.inputs {
			return nil, errors.New("no such input")
		}
		set := f.f32(regRange + 2*uint16(a))
		r := slices.IndexFunc(m.ranges, func(r float64) bool { return math.Abs(set-r) < r/1000 })
		if r < 0 {
			return nil, errors.New("no such range")
		}
		s.ain = append(s.ain, a)
		s.converter = append(s.converter, f.converters[a][r])
		s.power = append(s.power, make([]measure.Watt, s.perPacket))
	}
	s.start = f.pace.Now(time.Duration(f.first.Load()))
	f.first.Store(int64(s.start))
	return s, nil
}

// at is the board's time of a scan.
func (s *scanner) at(scan uint64) time.Duration {
	return s.start + time.Duration(math.Round(float64(scan)*s.step))
}

// run sends packets until ctx ends, writing fails, or the device stops by itself.
func (s *scanner) run(ctx context.Context, w io.Writer) error {
	timer := s.f.pace.NewTimer()
	defer timer.Stop()
	for !s.ends {
		last := s.at(s.scan + uint64(s.perPacket) - 1)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C(last - s.f.pace.Step()):
		}
		if now := s.f.pace.Now(last); now-last > s.f.pace.MaxBacklog() {
			// Whole packets are lost, as many as the time that is too much for the buffer would fill.
			s.f.loseAt.Store(0)
			s.f.lose.Add(int64(float64(now-last)/s.step) / int64(s.perPacket) * int64(s.perPacket))
		}
		if err := s.send(w); err != nil {
			return err
		}
	}
	return nil
}

// send sends the next packet, and the one before a loss.
func (s *scanner) send(w io.Writer) error {
	status, extra := uint16(s.f.injected.Swap(0)), uint16(0)
	if status != 0 {
		s.ends = status == StatusOverlap || status == StatusOverflow
		return s.packet(w, status, 0, 0)
	}
	lost := int64(0) // scans, now
	if s.scan >= s.f.loseAt.Load() {
		lost = s.f.lose.Swap(0)
	}
	if lost > 0 {
		if err := s.packet(w, StatusRecovering, 0, s.perPacket); err != nil {
			return err
		}
		s.scan += uint64(lost)
		s.f.skipped.Add(uint64(lost))
		status, extra = StatusRecovered, uint16(min(lost, 1<<16-1))
	}
	return s.packet(w, status, extra, s.perPacket)
}

// packet converts so many scans and sends them as one packet, with a status and its further field.
func (s *scanner) packet(w io.Writer, status, extra uint16, scans int) error {
	n := len(s.ain)
	// Transaction, protocol 0, length of the rest, unit 1, function 76, type 16, a reserved byte, a
	// backlog of 0, status and its further field.
	s.out = s.out[:0]
	s.tid++
	s.out = binary.BigEndian.AppendUint16(s.out, s.tid)
	s.out = append(s.out, 0, 0)
	s.out = binary.BigEndian.AppendUint16(s.out, uint16(10+2*scans*n))
	s.out = append(s.out, 1, 76, 16, 0, 0, 0)
	s.out = binary.BigEndian.AppendUint16(s.out, status)
	s.out = binary.BigEndian.AppendUint16(s.out, extra)
	for k := range s.ain {
		s.f.board.Trace(s.power[k][:scans], s.at(s.scan)+time.Duration(k)*s.f.cfg.Conversion, s.step)
	}
	for i := range scans {
		for k, ain := range s.ain {
			c := s.f.inputs.Volts(ain, s.power[k][i])/s.converter[k].slope + s.converter[k].center
			if s.f.cfg.Noise > 0 {
				c += s.f.cfg.Noise * s.rng.NormFloat64()
			}
			s.out = binary.BigEndian.AppendUint16(s.out, uint16(min(max(math.Round(c), 0), 65535)))
		}
	}
	s.scan += uint64(scans)
	s.f.scans.Add(uint64(scans))
	_, err := w.Write(s.out)
	return err
}
