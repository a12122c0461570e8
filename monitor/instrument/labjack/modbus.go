package labjack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/monitor/instrument"
	"wattmark/monitor/transport"
)

const answerTime = 2 * time.Second

// errRefused is a Modbus exception: the device is there and does not do it.
var errRefused = errors.New("the device refuses")

// modbus is a client of Modbus TCP; one goroutine uses it.
type modbus struct {
	conn transport.Conn
	tid  uint16
}

// ask sends a request and returns what the answer holds behind its function.
func (m *modbus) ask(ctx context.Context, function byte, request []byte) ([]byte, error) {
	m.tid++
	var head [8]byte
	binary.BigEndian.PutUint16(head[0:], m.tid)
	binary.BigEndian.PutUint16(head[4:], uint16(2+len(request)))
	head[6], head[7] = 1, function
	if err := transport.Ask(ctx, m.conn, append(head[:], request...), head[:], answerTime); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(head[4:])) - 2
	if binary.BigEndian.Uint16(head[0:]) != m.tid || head[2] != 0 || head[3] != 0 || head[7]&0x7F != function || length < 1 || length > 252 {
		return nil, fmt.Errorf("%w: answer % x to function %d: is this a LabJack?", instrument.ErrIdentity, head, function)
	}
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	body := make([]byte, length)
	if _, err := transport.ReadFull(short, m.conn, body); err != nil {
		return nil, err
	}
	if head[7] != function {
		return nil, fmt.Errorf("%w: Modbus exception %d", errRefused, body[0])
	}
	return body, nil
}

// read reads n registers from an address.
func (m *modbus) read(ctx context.Context, address, n uint16) ([]byte, error) {
	b, err := m.ask(ctx, 3, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, address), n))
	if err != nil {
		return nil, fmt.Errorf("read register %d: %w", address, err)
	}
	if len(b) != 1+2*int(n) || int(b[0]) != 2*int(n) {
		return nil, fmt.Errorf("read register %d: %w: %d bytes", address, instrument.ErrIdentity, len(b))
	}
	return b[1:], nil
}

func (m *modbus) readU32(ctx context.Context, address uint16) (uint32, error) {
	b, err := m.read(ctx, address, 2)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

func (m *modbus) readF32(ctx context.Context, address uint16) (float32, error) {
	v, err := m.readU32(ctx, address)
	return math.Float32frombits(v), err
}

// writeU32 writes two registers; set also reads them back.
func (m *modbus) writeU32(ctx context.Context, address uint16, v uint32) error {
	b := binary.BigEndian.AppendUint16(nil, address)
	b = append(b, 0, 2, 4)
	if _, err := m.ask(ctx, 16, binary.BigEndian.AppendUint32(b, v)); err != nil {
		return fmt.Errorf("write register %d: %w", address, err)
	}
	return nil
}

func (m *modbus) set(ctx context.Context, address uint16, v uint32) error {
	if err := m.writeU32(ctx, address, v); err != nil {
		return err
	}
	got, err := m.readU32(ctx, address)
	if err != nil {
		return err
	}
	if got != v {
		return fmt.Errorf("register %d reads back as %d after %d was written", address, got, v)
	}
	return nil
}

// setF32 sets a register and allows for what the device makes of it.
func (m *modbus) setF32(ctx context.Context, address uint16, v, tolerance float64) error {
	if err := m.writeU32(ctx, address, math.Float32bits(float32(v))); err != nil {
		return err
	}
	got, err := m.readF32(ctx, address)
	if err != nil {
		return err
	}
	if math.Abs(float64(got)-v) > tolerance*math.Abs(v) {
		return fmt.Errorf("register %d reads back as %v after %v was written", address, got, v)
	}
	return nil
}
