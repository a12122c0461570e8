package wt300face

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/monitor/emulator/scpiface"
)

func (f *Face) numericCommands() []command {
	return []command{
		{Pattern: "NUMeric[:NORMal]:NUMber", Set: func(c call) error {
			v, err := c.Number(0)
			if err == nil && (v < 1 || v > 255 || v != math.Trunc(v)) {
				err = scpiface.ErrRange
			}
			if err == nil {
				f.number = int(v)
			}
			return err
		}, Query: func(call) ([]byte, error) { return f.told("NUMERIC:NORMAL:NUMBER", strconv.Itoa(f.number)) }},
		{Pattern: "NUMeric[:NORMal]:ITEM<n>", Set: f.setItem, Query: func(c call) ([]byte, error) {
			n := c.Suffixes[0]
			if n < 1 || n > len(f.items) {
				return nil, scpiface.ErrRange
			}
			it := f.items[n-1]
			if it.function == "NONE" {
				return f.told(fmt.Sprintf("NUMERIC:NORMAL:ITEM%d", n), it.function)
			}
			return f.told(fmt.Sprintf("NUMERIC:NORMAL:ITEM%d", n), fmt.Sprintf("%s,%d", it.function, it.element))
		}},
		{Pattern: "NUMeric[:NORMal]:VALue", Query: func(call) ([]byte, error) { return f.read(), nil }},
	}
}

// setItem is NUM:NORM:ITEMn.
func (f *Face) setItem(c call) error {
	n := c.Suffixes[0]
	if n < 1 || n > len(f.items) {
		return scpiface.ErrRange
	}
	w, err := c.Word(0, "U", "I", "P", "NONE")
	if err != nil {
		return err
	}
	it := item{w, 1}
	if w != "NONE" && len(c.Args) > 1 {
		v, err := c.Number(1)
		if err != nil {
			return err
		}
		if it.element = int(v); it.element < 1 || it.element > maxElements || !f.elements[it.element].there {
			return scpiface.ErrRange
		}
	}
	f.items[n-1] = it
	return nil
}

// read is the answer to NUM:VAL?.
func (f *Face) read() []byte {
	f.update()
	if len(f.reads) == keptReads {
		f.reads = append(f.reads[:0], f.reads[keptReads/2:]...)
	}
	f.reads = append(f.reads, Read{f.base + f.count, f.due(f.count)})
	out := make([]float64, f.number)
	for i := range out {
		out[i] = f.value(f.items[i])
	}
	f.noData, f.overload = max(0, f.noData-1), max(0, f.overload-1)
	if f.format == "FLO" {
		b := make([]byte, 0, 4*len(out))
		for _, v := range out {
			b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
		return scpiface.Block(4, b)
	}
	s := make([]string, len(out))
	for i, v := range out {
		switch s[i] = fmt.Sprintf("%.4E", v); v {
		case nothing:
			s[i] = "NAN"
		case infinite:
			s[i] = "INF"
		}
	}
	return []byte(strings.Join(s, ","))
}

func (f *Face) value(it item) float64 {
	k := slices.Index([]string{"U", "I", "P"}, it.function)
	switch {
	case k < 0 || f.noData > 0 || f.base+f.count == 0:
		return nothing
	case f.overload > 0:
		return infinite
	}
	return f.shown[it.element][k]
}
