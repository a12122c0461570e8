package poweneticsface

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
)

// connector is one of the thirteen with what is really true of it.
type connector struct {
	rail             int           // −1 where no rail of the board is connected
	fixed            board.Reading // what it shows then
	gainV, gainI     float64
	offsetV, offsetI float64
}

// rails are the board's rails by connector; the rest of the PC is steady.
var rails = [Connectors]string{8: "aux_12v_3", 9: "aux_12v_2", 10: "pcie_3v3", 11: "pcie_12v", 12: "aux_12v_1"}

var rest = [Connectors]board.Reading{
	0: {V: 3.31, I: 0.9}, 1: {V: 5.04, I: 0.2}, 2: {V: 12.08, I: 1.4}, 3: {V: 5.02, I: 1.1}, 4: {V: 12.10, I: 3.2},
}

// connect puts the board's rails on the connectors and draws what is true of each.
func connect(on []board.RailConfig, cfg Config, rng *rand.Rand) (out [Connectors]connector) {
	draw := func(u float64) float64 {
		n := rng.NormFloat64()
		if !cfg.Draw {
			return 0
		}
		return n * u
	}
	for c := range out {
		out[c] = connector{
			rail: -1, fixed: rest[c],
			gainV: 1 + draw(cfg.Spread.UGainV), gainI: 1 + draw(cfg.Spread.UGainI),
			offsetV: draw(float64(cfg.Spread.UOffsetV)), offsetI: draw(float64(cfg.Spread.UOffsetI)),
		}
		for i, r := range on {
			if rails[c] != "" && r.Name == rails[c] {
				out[c].rail = i
			}
		}
	}
	return out
}

// append adds one frame to dst; p is the board's power at its time.
func (f *Face) append(dst []byte, p measure.Watt) []byte {
	dst = append(dst, 0xCA, 0xAC)
	dst = binary.BigEndian.AppendUint16(dst, uint16(f.beat.Next-f.begun)+f.cfg.First)
	for c := range f.connectors {
		k := &f.connectors[c]
		r := k.fixed
		if k.rail >= 0 {
			r = f.board.Rail(k.rail, p)
		}
		var v, i float64
		if r.V > 0 {
			v = float64(r.V)*k.gainV + k.offsetV + float64(f.cfg.NoiseV)*f.rng.NormFloat64()
			i = float64(r.I)*k.gainI + k.offsetI + float64(f.cfg.NoiseI)*f.rng.NormFloat64()
		}
		mV, mA := clip(v*1e3, 1<<16-1), clip(math.Round(i*200)*5, 1<<24-1) // in steps of 5 mA
		if f.cfg.Numbered && c == 0 {
			mA = uint32(f.beat.Next & (1<<24 - 1))
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(mV))
		dst = append(dst, byte(mA>>16), byte(mA>>8), byte(mA))
	}
	return dst
}

// clip rounds to a count; the device knows no negative ones.
func clip(x, most float64) uint32 { return uint32(min(max(math.Round(x), 0), most)) }
