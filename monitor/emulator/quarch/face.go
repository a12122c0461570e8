// Package quarch is Quarch's instrument server QIS in software, with a Power Analysis Module whose
// fixtures sit in a graphics card's slot and plugs, fed by the emulated board.
//
// A command is a line, a reply lines with the prompt ">" behind. Readings of 4 µs are averaged to
// stripes, which wait in a buffer until a client takes them; a full buffer ends the stream as overrun.
package quarch

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/internal/line"
	"github.com/wattmark/wattmark/monitor/emulator/internal/wiring"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
)

const (
	maxText = 3072 // stripes of one reply
	running = "Running"
	ok      = "OK\r\n"
	device  = "QTL2312-01-035"
	name    = "Power Analysis Module"

	mostV, mostI   = 32767, 16777215 // ends of the ranges
	noiseV, noiseI = 1e-3, 2e-3      // of a stripe
)

// Config describes the server and its module.
type Config struct {
	Seed uint64
	// Buffer is how many stripes wait for a client; default 8388608.
	Buffer uint64
	// Draw draws the module's errors: 1 % and 0.5 % in gain of current and voltage, 10 mA and 5 mV in
	// zero, 50 ppm. Without it the module is true but for noise.
	Draw bool
}

// Face is one server with one module. Run may be called for several clients at a time.
type Face struct {
	board *board.Board
	pace  pace.Pace
	cfg   Config
	pairs []wiring.Pair
	fast  float64 // 1 and how much its clock is fast

	mu                sync.Mutex
	rng               *rand.Rand
	average, resample time.Duration
	state             string        // "" before the first stream
	period            time.Duration // of the stream's stripes, by the module's clock
	beat              line.Beat     // counts the stripes that clients got
	end               uint64        // of a stream that stopped
}

// The board's rails, and their fixtures: each a voltage in mV and a current in µA.
var (
	rails    = []string{"pcie_3v3", "pcie_12v", "aux_12v_1", "aux_12v_2"}
	fixtures = []string{"3.3V", "12V", "AUX_12V_1", "AUX_12V_2"}
)

// New makes a server whose module reads a board; the pace has to be that of a clock.
func New(b *board.Board, p pace.Pace, cfg Config) (*Face, error) {
	cfg.Buffer = cmp.Or(cfg.Buffer, 8388608)
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x717561726368))
	spread := meter.Spread{UGainI: 0.01, UGainV: 0.005, UOffsetI: 0.01, UOffsetV: 0.005, UClock: 5e-5}
	return &Face{
		board: b, pace: p, cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365)),
		pairs: wiring.Pairs(b.Rails(), rails, make([]board.Reading, len(rails)), spread, cfg.Draw, rng),
		fast:  1 + meter.Drawing(rng, cfg.Draw)(spread.UClock), average: 4 * time.Microsecond,
	}, nil
}

// StreamStart is the board's time of the first stripe of the last stream; call it once that is over.
func (f *Face) StreamStart() time.Duration { return f.beat.Start }

// Run serves one client until ctx ends or the client goes; it closes the line.
func (f *Face) Run(ctx context.Context, rw io.ReadWriteCloser) error {
	defer rw.Close()
	defer context.AfterFunc(ctx, func() { _ = rw.Close() })()
	_, err := io.WriteString(rw, "Quarch Instrument Server v1.39\r\n>")
	for lines := bufio.NewScanner(rw); err == nil && lines.Scan(); {
		_, err = io.WriteString(rw, f.answer(strings.ToLower(strings.TrimSpace(lines.Text())))+">")
	}
	return nil // a client that goes badly concerns no other
}

// answer carries out a command. There is one module, so that its name in front may be any.
func (f *Face) answer(command string) string {
	if to, rest, _ := strings.Cut(command, " "); strings.Contains(to, "::") {
		command = rest
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.made()
	switch command {
	case "$version":
		return "1.39\r\n"
	case "$list":
		return fmt.Sprintf("1) rest::%[1]s\r\n2) usb::%[1]s\r\n", strings.ToLower(device))
	case "$list details":
		return fmt.Sprintf("1) rest::%[1]s IP:192.168.1.90 Port:80 NBName:2312-01-035 Stream:Yes Name:%[2]s\r\n"+
			"2) usb::%[1]s Port:9 Stream:Yes Name:%[2]s\r\n", device, name)
	case "hello?":
		return name + "\r\n"
	case "rec stream", "record stream":
		f.state, f.period = running, max(f.average, f.resample)
		f.beat = line.Beat{Start: f.pace.Now(0), Step: float64(f.period) / f.fast}
	case "rec stop":
		if f.state == running {
			f.state, f.end = "Stopped: User", all
		}
	case "stream?", "rec stream?":
		return fmt.Sprintf("%s\r\nStripes Buffered: %d of %d\r\n", cmp.Or(f.state, "Stopped"),
			max(all, f.beat.Next)-f.beat.Next,
			f.cfg.Buffer)
	case "stream text header":
		return f.header()
	case "stream text all":
		return f.text(all, maxText)
	default:
		return f.set(command, all)
	}
	return ok
}

// set carries out a command that ends in a value.
func (f *Face) set(command string, all uint64) string {
	i := max(0, strings.LastIndexByte(command, ' '))
	value, kilo := strings.CutSuffix(strings.TrimSpace(command[i:]), "k")
	n, err := strconv.ParseUint(value, 10, 15)
	switch command[:i] {
	case "stream text":
		return f.text(all, n)
	case "record:averaging":
		if f.average = 4 * time.Microsecond * time.Duration(max(1, n)); kilo {
			f.average *= 1024
		}
	case "stream mode resample":
		f.resample, err = time.ParseDuration(value)
	case "record:trigger:mode", "stream mode header", "stream mode power", "stream mode power total", "$default":
		err = nil
	default:
		err = strconv.ErrSyntax
	}
	if err != nil {
		return "FAIL: bad command\r\n"
	}
	return ok
}

// made is how many stripes there are by now. Where more wait than the buffer takes, the stream stops.
func (f *Face) made() uint64 {
	if f.state == running {
		f.end = uint64(float64(f.pace.Now(f.beat.Start)-f.beat.Start) / f.beat.Step)
		if full := f.beat.Next + f.cfg.Buffer; f.end > full {
			f.state, f.end = "Stopped: Overrun", full
		}
	}
	return f.end
}

// header describes the stream, in the third form of QIS's headers.
func (f *Face) header() string {
	if f.state == "" {
		return "Header Not Available\r\n"
	}
	us := f.period.Microseconds()
	out := fmt.Sprintf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\r\n<header>\r\n<version>V3</version>\r\n"+
		"<devicePeriod>%dus</devicePeriod>\r\n<mainPeriod>%duS</mainPeriod>\r\n<channels>\r\n", us, us)
	const channel = "<channel>\r\n<name>%s</name>\r\n<group>%s</group>\r\n<units>%s</units>\r\n" +
		"<maxTValue>%d</maxTValue>\r\n<dataPosition>%d</dataPosition>\r\n</channel>\r\n"
	for i, name := range fixtures {
		out += fmt.Sprintf(channel, name, "voltage", "mV", mostV, 2*i+1)
		out += fmt.Sprintf(channel, name, "current", "uA", mostI, 2*i+2)
	}
	return out + fmt.Sprintf(channel, "PERST#", "Digital", "D", 1, 9) + "</channels>\r\n</header>\r\n"
}

// text hands out stripes, up to most of all that were made, and "eof" behind the last there is.
func (f *Face) text(all, most uint64) string {
	var out []byte
	count := func(x, most float64) {
		out = strconv.AppendInt(append(out, ' '), int64(min(max(math.Round(x), -most), most)), 10)
	}
	for ; f.beat.Next < all && most > 0; most-- {
		out = strconv.AppendInt(out, int64(f.beat.Next)*f.period.Microseconds(), 10)
		p := f.board.MeanPower(f.beat.Now(), f.beat.At(f.beat.Next+1))
		for k := range f.pairs {
			v, i := f.pairs[k].Read(f.board, p, noiseV, noiseI, f.rng)
			count(1e3*v, mostV)
			count(1e6*i, mostI)
		}
		out = append(out, " 1\r\n"...)
		f.beat.Next++
	}
	f.board.Observe(f.beat.Now())
	if f.beat.Next >= all {
		out = append(out, "eof\r\n"...)
	}
	return string(out)
}
