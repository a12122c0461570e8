package u2300

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"wattmark/measure"
	"wattmark/monitor/scpi"
)

// status is the answer to WAV:STAT?.
type status string

// What the device says of its memory.
const (
	statusEmpty    status = "EPTY" // nothing yet
	statusFragment status = "FRAG" // less than a block
	statusData     status = "DATA" // at least one block
	statusOver     status = "OVER" // memory was full: the acquisition has ended
)

func parseStatus(s string) (status, error) {
	v := status(strings.ToUpper(strings.TrimSpace(s)))
	if !slices.Contains([]status{statusEmpty, statusFragment, statusData, statusOver}, v) {
		return "", fmt.Errorf("%w: WAV:STAT? gives %.40q", scpi.ErrReply, s)
	}
	return v, nil
}

// parseChannels reads a channel list, (@101,103:105).
func parseChannels(s string) (out []int, err error) {
	bad := fmt.Errorf("%w: %.40q is no channel list", scpi.ErrReply, s)
	list := strings.TrimSpace(s)
	if !strings.HasPrefix(list, "(@") || !strings.HasSuffix(list, ")") {
		return nil, bad
	}
	for _, part := range strings.Split(list[2:len(list)-1], ",") {
		from, to, span := strings.Cut(strings.TrimSpace(part), ":")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && span {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first || last-first > models[len(models)-1].channels || len(out) > models[len(models)-1].channels {
			return nil, bad
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

const bytesSample = 2

// scans calls take for every scan of a block of little-endian codes, interleaved
// as the scan list says. A block that does not hold whole scans is refused.
func scans(data []byte, counts []measure.Count, take func([]measure.Count) error) error {
	size := bytesSample * len(counts)
	if len(data)%size != 0 {
		return fmt.Errorf("%w: a block of %d bytes does not hold whole scans of %d inputs", scpi.ErrReply, len(data), len(counts))
	}
	for b := data; len(b) > 0; b = b[size:] {
		for c := range counts {
			counts[c] = measure.Count(int16(binary.LittleEndian.Uint16(b[bytesSample*c:])))
		}
		if err := take(counts); err != nil {
			return err
		}
	}
	return nil
}
