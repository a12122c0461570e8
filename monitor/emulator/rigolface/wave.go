package rigolface

import (
	"fmt"
	"math"
	"strings"
	"time"

	"wattmark/monitor/emulator/scpiface"
)

// waveform is what :WAV is set to.
type waveform struct {
	source       int
	mode, format string
	start, stop  int
}

// view is the points that can be read now: where they begin, how far apart they
// lie in nanoseconds of the scope's own time, and how many they are.
type view struct {
	points int
	step   float64
}

func (f *Face) view() view {
	f.update()
	if f.wav.mode == "NORM" || (f.wav.mode == "MAX" && f.acq.running) {
		return view{screenSize, f.window() / screenSize * 1e9}
	}
	if f.acq.running {
		return view{f.points(), 1e9 / f.rate()}
	}
	return view{f.acq.held, 1e9 / f.acq.rate}
}

// scaling is what turns a channel's codes into volts.
func (f *Face) scaling(channel int) (inc float64, origin int) {
	c := &f.channels[channel]
	inc = c.scale / CodesPerDiv
	return inc, int(math.Round(c.offset / inc))
}

// preamble is the answer to :WAV:PRE?.
func (f *Face) preamble() ([]byte, error) {
	format := map[string]int{"BYTE": 0, "WORD": 1, "ASC": 2}[f.wav.format]
	kind := map[string]int{"NORM": 0, "MAX": 1, "RAW": 2}[f.wav.mode]
	v := f.view()
	inc, origin := f.scaling(f.wav.source)
	return scpiface.Text("%d,%d,%d,1,%s,%s,0,%s,%d,%d", format, kind, v.points, exact(v.step*1e-9),
		exact(f.timeShift-f.window()/2), exact(inc), origin, Reference)
}

// exact writes a number with all the digits that it has.
func exact(v float64) string { return fmt.Sprintf("%.9e", v) }

// data is the answer to :WAV:DATA?: the points from :WAV:STAR to :WAV:STOP.
// Deep memory is readable only while the scope stands; a read that cannot be
// gives an empty block.
func (f *Face) data() ([]byte, error) {
	v := f.view()
	first, n := f.wav.start-1, f.wav.stop-f.wav.start+1
	most := MaxRead
	if f.wav.format == "WORD" {
		most /= 2
	}
	if f.wav.format == "ASC" {
		most /= 16
	}
	if f.wav.mode != "NORM" && f.acq.running || !f.channels[f.wav.source].shown {
		return scpiface.Block(9, nil), nil
	}
	if n < 1 || n > most || first+n > v.points {
		return scpiface.Block(9, nil), scpiface.ErrRange
	}
	codes := f.codes(first, n, v)
	switch f.wav.format {
	case "WORD":
		out := make([]byte, 2*n)
		for i, c := range codes {
			out[2*i] = c
		}
		return scpiface.Block(9, out), nil
	case "ASC":
		var b strings.Builder
		inc, origin := f.scaling(f.wav.source)
		for i, c := range codes {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(scpiface.Exponent(float64(int(c)-origin-Reference) * inc))
		}
		return scpiface.Block(9, []byte(b.String())), nil
	}
	return scpiface.Block(9, codes), nil
}

// codes converts points of the source channel. Reading twice gives the same.
func (f *Face) codes(first, n int, v view) []byte {
	step := v.step / (1 + f.cfg.Clock)
	begin := f.acq.begin
	if f.acq.running { // the screen of a scope that runs is what was just taken
		begin = f.cfg.Now() - time.Duration(f.window()*1e9)
	}
	ch := f.wav.source
	volts := f.volts(ch, begin+time.Duration(math.Round(float64(first)*step)), step, n)
	inc, origin := f.scaling(ch)
	out := make([]byte, n)
	for i, x := range volts {
		x *= 1 + f.cfg.Gain[ch]
		code := x/inc + float64(origin+Reference) + f.cfg.Zero[ch]*CodesPerDiv
		code += f.cfg.NoiseCodes * f.noise(ch, first+i)
		out[i] = byte(min(max(math.Round(code), 0), 255))
	}
	return out
}

// noise is the noise of one point, near to normal with a deviation of one: the
// sum of four uniform numbers out of a hash, so that memory stays what it is.
func (f *Face) noise(channel, point int) float64 {
	x := f.cfg.Seed ^ f.acq.number<<48 ^ uint64(channel)<<40 ^ uint64(point)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	sum := float64(x&0xffff) + float64(x>>16&0xffff) + float64(x>>32&0xffff) + float64(x>>48)
	return (sum/65535 - 2) * math.Sqrt(3)
}
