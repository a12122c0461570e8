package labjack

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/fault"
	labjackface "github.com/wattmark/wattmark/monitor/emulator/labjack"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// packets builds n packets of as many samples.
func packets(n, samples int) (b []byte) {
	for i := range n {
		b = binary.BigEndian.AppendUint16(b, uint16(i))
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(lengthRest+2*samples))
		b = append(b, 1, 76, 16, 0, 0, 7)
		b = binary.BigEndian.AppendUint16(b, uint16(i))
		b = append(b, 0, 9)
		for k := range samples {
			b = binary.BigEndian.AppendUint16(b, uint16(256*i+k))
		}
	}
	return b
}

func parsed(p *Parser, b []byte, piece int) (out []string) {
	take := func() {
		out = append(out, fmt.Sprintf("%d %d %d %x", p.Packet.Backlog, p.Packet.Status, p.Packet.Extra, p.Packet.Data))
	}
	for len(b) > 0 && !p.Broken {
		k := min(piece, len(b))
		for part := b[:k]; ; {
			n, ok := p.Next(part)
			part = part[n:]
			if !ok {
				break
			}
			take()
		}
		b = b[k:]
	}
	for p.Rest() {
		take()
	}
	return out
}

func TestParser(t *testing.T) {
	for _, samples := range []int{1, 6, maxSamples} {
		data := packets(20, samples)
		for _, piece := range []int{1, 11, 1 << 20} {
			var p Parser
			got := parsed(&p, data, piece)
			if len(got) != 20 || p.Broken || got[3][:5] != "7 3 9" {
				t.Fatalf("%d samples in pieces of %d: %d packets", samples, piece, len(got))
			}
		}
		// A lost, added or changed byte of a header ends it; nothing false comes out.
		size := len(data) / 20
		for name, spoilt := range map[string][]byte{
			"lost":  append(append([]byte{}, data[:5*size+17]...), data[5*size+18:]...),
			"added": append(append([]byte{}, data[:5*size+17]...), data[5*size+16:]...),
		} {
			var p Parser
			got := parsed(&p, spoilt, 100)
			if !p.Broken || len(got) != 5 {
				t.Errorf("a byte %s: %d packets, broken %v", name, len(got), p.Broken)
			}
		}
	}
}

func FuzzParser(f *testing.F) {
	f.Add(packets(4, 3), uint8(5))
	f.Add(packets(4, 0), uint8(1))
	f.Add(packets(2, 512)[2:], uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		var p, q Parser
		a, b := parsed(&p, data, int(piece)+1), parsed(&q, data, len(data)+1)
		if fmt.Sprint(a) != fmt.Sprint(b) || p.Broken != q.Broken || len(a) > len(data)/headerBytes {
			t.Fatalf("%v in pieces, %v at once", a, b)
		}
	})
}

func TestParserDoesNotAllocate(t *testing.T) {
	data := packets(50, 120)
	var p Parser
	if n := testing.AllocsPerRun(10, func() { drain(&p, data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func drain(p *Parser, b []byte) {
	for {
		n, ok := p.Next(b)
		if b = b[n:]; !ok {
			return
		}
	}
}

func BenchmarkParser(b *testing.B) {
	data := packets(100, 500)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	var p Parser
	for range b.N {
		drain(&p, data)
	}
	b.ReportMetric(float64(b.N)*100*500/b.Elapsed().Seconds(), "samples/s")
	if p.Broken {
		b.Error("out of step")
	}
}

// tool is a program that we did not write; a test without it says so.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	missing := cmd.Err
	if missing == nil && strings.Contains(name, "python3") {
		missing = exec.CommandContext(t.Context(), name, "-c", "from pymodbus.client import ModbusTcpClient").Run()
	}
	if missing != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatalf("%s: %v", name, missing)
		}
		t.Skipf("%s is not there: %v (.ci/install installs it)", name, missing)
	}
	return cmd
}

// mbpoll, a Modbus master of others, reads and writes the face's registers.
func TestMbpollReadsTheRegisters(t *testing.T) {
	r := emulate(t, labjackface.Config{Seed: 9}, fault.Faults{})
	host, port, _ := strings.Cut(strings.TrimPrefix(r.dev.ID.Address, "tcp:"), ":")
	poll := func(args ...string) string {
		out, err := tool(t, "mbpoll", append([]string{"-m", "tcp", "-p", port, "-0", "-1", "-B", "-a", "1"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := poll("-t", "4:float", "-r", "60000", host); !strings.Contains(out, "[60000]: \t7\n") {
		t.Errorf("product: %s", out)
	}
	if out := poll("-t", "4:int", "-r", "60028", host); !strings.Contains(out, "470010009") {
		t.Errorf("serial number: %s", out)
	}
	poll("-t", "4:float", "-r", "4002", host, "1234.5")
	if out := poll("-t", "4:float", "-r", "4002", host); !strings.Contains(out, "1234.5") {
		t.Errorf("scan rate: %s", out)
	}
	poll("-t", "4:int", "-r", "61810", host, "3948544") // the constants, at 3C4000 hex
	if out := poll("-t", "4:float", "-r", "61812", "-c", "3", host); !strings.Contains(out, "[61816]: \t33523\n") {
		t.Errorf("center: %s", out)
	}
	v := float64(r.board.At(0)[2].V) / meter.Divider
	if out := poll("-t", "4:float", "-r", "0", host); !strings.Contains(out, "[0]: \t"+trunc(v, 3)) {
		t.Errorf("AIN0: %s, want %v V", out, v)
	}
}

// trunc writes the first decimals of v.
func trunc(v float64, decimals int) string {
	p := math.Pow10(decimals)
	return strconv.FormatFloat(math.Floor(v*p)/p, 'f', -1, 64)
}

// pymodbus does the same with the stream's set-up, and is refused what a T7 has not.
func TestPymodbusSetsTheStreamUp(t *testing.T) {
	r := emulate(t, labjackface.Config{}, fault.Faults{})
	host, port, _ := strings.Cut(strings.TrimPrefix(r.dev.ID.Address, "tcp:"), ":")
	script := `
import struct, sys
from pymodbus.client import ModbusTcpClient
c = ModbusTcpClient(sys.argv[1], port=int(sys.argv[2]))
assert c.connect()
def put(a, fmt, v):
    r = c.write_registers(a, list(struct.unpack(">HH", struct.pack(fmt, v))), slave=1)
    assert not r.isError(), r
def get(a, fmt):
    r = c.read_holding_registers(a, 2, slave=1)
    assert not r.isError(), r
    return struct.unpack(fmt, struct.pack(">HH", *r.registers))[0]
assert get(60000, ">f") == 7
put(4002, ">f", 2000.0); put(4004, ">I", 2); put(4006, ">I", 20); put(4016, ">I", 1); put(4100, ">I", 0); put(4102, ">I", 2)
assert get(4002, ">f") == 2000 and get(4102, ">I") == 2
assert c.read_holding_registers(5000, 2, slave=1).isError()
assert c.write_registers(60000, [0, 0], slave=1).isError()
print("done")
`
	out, err := tool(t, "/usr/bin/python3", "-c", script, host, port).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v\n%s", err, out)
	}
}

// pymodbus reads a T8 and the constants of its third input on ±4.8 V.
func TestPymodbusReadsAT8(t *testing.T) {
	r := emulate(t, labjackface.Config{Product: 8}, fault.Faults{})
	host, port, _ := strings.Cut(strings.TrimPrefix(r.dev.ID.Address, "tcp:"), ":")
	script := `
import struct, sys
from pymodbus.client import ModbusTcpClient
c = ModbusTcpClient(sys.argv[1], port=int(sys.argv[2]))
assert c.connect()
def read(a, n):
    r = c.read_holding_registers(a, 2*n, slave=1)
    assert not r.isError(), r
    return struct.unpack(">%df" % n, struct.pack(">%dH" % (2*n), *r.registers))
assert read(60000, 1) == (8.0,)
assert read(40000, 1) == (11.0,)
r = c.write_registers(61810, list(struct.unpack(">HH", struct.pack(">I", 0x687000 + 64 + (2*11 + 2)*16))), slave=1)
assert not r.isError(), r
p, n, center, offset = read(61812, 4)
assert abs(p*2**23 - 4.884) < 1e-5 and n == -p and center == 2**23, (p, n, center)
assert c.read_holding_registers(16, 2, slave=1).isError() # it has no AIN8
print("done")
`
	out, err := tool(t, "/usr/bin/python3", "-c", script, host, port).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v\n%s", err, out)
	}
}

// A driver of a few lines, apart from the product's own, streams.
func TestFaceAlone(t *testing.T) {
	r := emulate(t, labjackface.Config{Noise: -1}, fault.Faults{})
	if err := r.dev.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(r.dev.ID.Address, "tcp:"), ":")
	c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(r.opts.StreamPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := r.dev.registers.writeU32(t.Context(), regEnable, 1); err != nil {
		t.Fatal(err)
	}
	n := len(r.opts.Inputs)
	perPacket := max(1, min(int(r.opts.ScanRate*packetTime), maxSamples/n)) * n
	head := make([]byte, 16)
	for i := range 10 {
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		if head[7] != 76 || head[8] != 16 || binary.BigEndian.Uint16(head[4:]) != uint16(10+2*perPacket) {
			t.Fatalf("packet %d: % x", i, head)
		}
		data := make([]byte, 2*perPacket)
		if _, err := io.ReadFull(c, data); err != nil {
			t.Fatal(err)
		}
		v := (float64(binary.BigEndian.Uint16(data)) - 33523) * 3.158058e-4 * 2
		scan := i * perPacket / len(r.opts.Inputs)
		want := float64(r.board.At(r.face.StreamStart() + time.Duration(scan)*200*time.Microsecond)[2].V)
		if math.Abs(v-want) > 1e-3 {
			t.Errorf("packet %d: %v V, the board had %v V", i, v, want)
		}
	}
}
