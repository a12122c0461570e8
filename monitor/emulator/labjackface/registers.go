package labjackface

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
)

// Registers of the device.
const (
	regScanRate   = 4002
	regAddresses  = 4004
	regPerPacket  = 4006
	regSettling   = 4008
	regResolution = 4010
	regBuffer     = 4012
	regTarget     = 4016
	regDataType   = 4018
	regScans      = 4020
	regScanList   = 4100
	regEnable     = 4990
	regRange      = 40000
	regProduct    = 60000
	regFirmware   = 60004
	regSerial     = 60028

	regFlashPointer = 61810
	regFlashRead    = 61812
)

// Modbus exceptions.
const (
	badFunction = 1
	badAddress  = 2
	failed      = 4
)

// powerUp sets the registers to what they are at power-on.
func (f *Face) powerUp() {
	f.registers = map[uint16]uint16{}
	put := func(address uint16, v uint32) {
		f.registers[address], f.registers[address+1] = uint16(v>>16), uint16(v)
	}
	for _, r := range []uint16{regScanRate, regAddresses, regPerPacket, regSettling, regResolution, regBuffer, regTarget, regDataType, regScans, regEnable, regFlashPointer} {
		put(r, 0)
	}
	for i := range uint16(f.model.inputs) {
		put(regScanList+2*i, 0)
		put(regRange+2*i, math.Float32bits(float32(f.model.ranges[0])))
	}
	put(regProduct, math.Float32bits(f.cfg.Product))
	put(regFirmware, math.Float32bits(1.0300))
	put(regSerial, 470010000+uint32(f.cfg.Seed))
}

func (f *Face) u32(address uint16) uint32 {
	return uint32(f.registers[address])<<16 | uint32(f.registers[address+1])
}

func (f *Face) f32(address uint16) float64 { return float64(math.Float32frombits(f.u32(address))) }

// session answers one client's requests until it hangs up.
func (f *Face) session(ctx context.Context, c net.Conn) {
	defer c.Close()
	head := make([]byte, 8)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint16(head[4:])) - 2
		if length < 0 || length > 252 {
			return
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		reply, exception := f.answer(ctx, head[7], body)
		function := head[7]
		if exception != 0 {
			function, reply = function|0x80, []byte{exception}
		}
		out := append([]byte{head[0], head[1], 0, 0, 0, 0, head[6], function}, reply...)
		binary.BigEndian.PutUint16(out[4:], uint16(2+len(reply)))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// answer carries out one request.
func (f *Face) answer(ctx context.Context, function byte, b []byte) (reply []byte, exception byte) {
	if len(b) < 4 {
		return nil, badAddress
	}
	address, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
	switch function {
	case 3, 4:
		return f.read(address, n)
	case 6:
		return b, f.write(ctx, address, b[2:4])
	case 16:
		if len(b) < 5 || len(b) != 5+2*n || int(b[4]) != 2*n {
			return nil, badAddress
		}
		return b[:4], f.write(ctx, address, b[5:])
	}
	return nil, badFunction
}

func (f *Face) read(address uint16, n int) ([]byte, byte) {
	if n < 1 || n > 125 {
		return nil, badAddress
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if address == regFlashRead {
		return f.readFlash(n), 0
	}
	f.convert(address, n)
	out := []byte{byte(2 * n)}
	for i := range uint16(n) {
		v, ok := f.registers[address+i]
		if !ok {
			return nil, badAddress
		}
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return out, 0
}

// convert puts the present voltage of the inputs that are read into their
// registers, AINn at 2n.
func (f *Face) convert(address uint16, n int) {
	if int(address) >= 2*f.model.inputs {
		return
	}
	at := f.pace.Now(0)
	for ain := int(address) / 2; ain < f.model.inputs && 2*ain < int(address)+n; ain++ {
		v := math.Float32bits(float32(f.inputs.VoltsAt(ain, at)))
		f.registers[uint16(2*ain)], f.registers[uint16(2*ain+1)] = uint16(v>>16), uint16(v)
	}
}

// write sets registers; the stream's own cannot be changed while it runs.
func (f *Face) write(ctx context.Context, address uint16, b []byte) byte {
	if address == regEnable && len(b) == 4 {
		return f.enable(ctx, binary.BigEndian.Uint32(b) != 0)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range len(b) / 2 {
		a := address + uint16(i)
		if _, ok := f.registers[a]; !ok || a < regScanRate || a >= regProduct && a/2 != regFlashPointer/2 {
			return badAddress
		}
	}
	if f.cancel != nil && address < regEnable {
		return failed
	}
	for i := range len(b) / 2 {
		f.registers[address+uint16(i)] = binary.BigEndian.Uint16(b[2*i:])
	}
	return 0
}

// enable starts or stops the stream.
func (f *Face) enable(ctx context.Context, on bool) byte {
	if on {
		f.expect(ctx)
		if f.startStream(ctx) != nil {
			return failed
		}
		return 0
	}
	f.mu.Lock()
	runs := f.cancel != nil
	f.mu.Unlock()
	if !runs {
		return failed
	}
	f.stopStream()
	return 0
}
