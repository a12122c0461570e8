package labjack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"golang.org/x/sync/errgroup"
)

// Serve serves the registers on one listener and the stream on another until ctx
// ends. It returns nil then, and closes both.
func (f *Face) Serve(ctx context.Context, registers, stream net.Listener) error {
	defer f.stopStream()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return line.Accept(ctx, "LabJack", stream, f.attach) })
	g.Go(func() error {
		return line.Accept(ctx, "LabJack", registers, func(c net.Conn) {
			g.Go(func() error { f.session(ctx, c); return nil })
		})
	})
	return g.Wait()
}

// attach takes a connection for the stream; the one before it is dropped.
func (f *Face) attach(c net.Conn) {
	f.stopStream()
	var rw io.ReadWriteCloser = c
	if f.cfg.Wrap != nil {
		rw = f.cfg.Wrap(c)
	}
	f.conns <- rw // which is empty now
}

// stopStream ends a stream that runs, and drops a connection that waits for one.
func (f *Face) stopStream() {
	f.mu.Lock()
	cancel, stopped := f.cancel, f.stopped
	f.cancel = nil
	f.mu.Unlock()
	if cancel != nil {
		cancel()
		<-stopped
	}
	select {
	case c := <-f.conns:
		_ = c.Close()
	default:
	}
}

// startStream begins to scan. It waits a moment for the stream's connection, which a driver may have made just now, and
// drops that where the stream is not set up.
func (f *Face) startStream(ctx context.Context) error {
	moment, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	var target io.ReadWriteCloser
	select {
	case target = <-f.conns:
	case <-moment.Done():
		return moment.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.newScanner()
	if err != nil {
		return errors.Join(err, target.Close())
	}
	ctx, f.cancel = context.WithCancel(ctx)
	stopped := make(chan struct{})
	f.stopped = stopped
	go func() {
		defer close(stopped)
		defer context.AfterFunc(ctx, func() { _ = target.Close() })() // which also ends a blocked write
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
	line.Beat // counts the scans
	f         *Face
	ain       []int
	converter []converter
	perPacket int // scans
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
	s := &scanner{f: f, perPacket: samples / n, rng: rand.New(rand.NewPCG(f.cfg.Seed, 0x6e6f697365))}
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
	s.Beat = line.Beat{Pace: f.pace, Start: f.pace.Now(time.Duration(f.first.Load())), Step: 1e9 / rate}
	f.first.Store(int64(s.Start))
	return s, nil
}

// run sends packets until ctx ends, writing fails, or the device stops by itself.
func (s *scanner) run(ctx context.Context, w io.Writer) error {
	for !s.ends {
		last := s.At(s.Next + uint64(s.perPacket) - 1)
		select {
		case <-ctx.Done():
			return nil
		case <-s.Pace.Wait(last - s.Pace.Step()):
		}
		if now := s.Pace.Now(last); now-last > s.Pace.MaxBacklog() {
			// Whole packets are lost, as many as the time that is too much for the buffer would fill.
			s.f.loseAt.Store(0)
			s.f.lose.Add(int64(float64(now-last)/s.Step) / int64(s.perPacket) * int64(s.perPacket))
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
	if s.Next >= s.f.loseAt.Load() {
		lost = s.f.lose.Swap(0)
	}
	if lost > 0 {
		if err := s.packet(w, StatusRecovering, 0, s.perPacket); err != nil {
			return err
		}
		s.Next += uint64(lost)
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
		s.f.board.Trace(s.power[k][:scans], s.At(s.Next)+time.Duration(k)*s.f.cfg.Conversion, s.Step)
	}
	for i := range scans {
		for k, ain := range s.ain {
			c := s.f.inputs.Volts(ain, s.power[k][i])/s.converter[k].slope + s.converter[k].center
			s.out = binary.BigEndian.AppendUint16(s.out, uint16(meter.Code(c, s.f.cfg.Noise, s.rng, 0, math.MaxUint16)))
		}
	}
	s.Next += uint64(scans)
	s.f.scans.Add(uint64(scans))
	_, err := w.Write(s.out)
	return err
}
