package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
)

// Identity is an instrument's own answer about itself.
type Identity struct {
	Kind, Model, Serial, Firmware, Address string
}

// OwnSensors are the kinds of meters that are a GPU's own sensor: no truth for it.
var OwnSensors = []string{"nvml", "amdsmi"}

// OwnSensor reports whether the instrument is a GPU's own sensor.
func (i *Identity) OwnSensor() bool { return slices.Contains(OwnSensors, i.Kind) }

// fields are all of an Identity's, the kind first.
func (i *Identity) fields() [5]*string {
	return [...]*string{&i.Kind, &i.Model, &i.Serial, &i.Firmware, &i.Address}
}

// and separates the fields of several instruments that are read as one.
const and = " + "

// JoinIdentities is the identity of several instruments that are read as one: each
// field of all of them, in their order; empty where all are.
func JoinIdentities(parts []Identity) (out Identity) {
	for f, field := range out.fields() {
		all := lists.Map(parts, func(i Identity) string { return strings.ReplaceAll(*i.fields()[f], and, "+") })
		if strings.Join(all, "") != "" {
			*field = strings.Join(all, and)
		}
	}
	return out
}

// Parts are the instruments that JoinIdentities joined: itself alone where it is of
// one, or where its fields are not of as many instruments as its kinds.
func (i Identity) Parts() []Identity {
	kinds := strings.Split(i.Kind, and)
	out := make([]Identity, len(kinds))
	for f, joined := range i.fields() {
		if *joined == "" {
			continue
		}
		each := strings.Split(*joined, and)
		if len(each) != len(kinds) {
			return []Identity{i}
		}
		for k := range out {
			*out[k].fields()[f] = each[k]
		}
	}
	return out
}

var gpuUUID = lazy.Regexp(`^gpu-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// ParseGPUUUID reads the UUID of a GPU as nvidia-smi -L shows it, GPU-…, in any
// case, and returns it in one form. A MIG device is refused: a meter sees the
// whole card that it is a part of.
func ParseGPUUUID(s string) (string, error) {
	low := strings.ToLower(s)
	switch {
	case strings.HasPrefix(low, "mig-"):
		return "", fmt.Errorf("%q is a MIG device, a part of a card: a meter sees the whole card; "+
			"name the card (GPU-…), with MIG off (nvidia-smi -i … -mig 0)", s)
	case !gpuUUID().MatchString(low):
		return "", fmt.Errorf(
			"%q is not the UUID of a GPU: want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, as nvidia-smi -L shows it", s)
	}
	return "GPU-" + low[len("gpu-"):], nil
}

// SameGPU reports whether two UUIDs name one GPU, however they are written.
func SameGPU(a, b string) bool { return a != "" && strings.EqualFold(a, b) }

// ErrText is wrapped by errors about texts that cannot be shown as they are.
var ErrText = errors.New("not a printable text")

// CheckText refuses a text that is not UTF-8 or holds characters that a terminal would
// obey rather than show: control characters, escape sequences, marks that turn
// the writing round. The error names the text by name.
func CheckText(name, s string) error {
	if Printable(s) != s {
		return fmt.Errorf("%s %q: %w: use printable characters in UTF-8", name, s, ErrText)
	}
	return nil
}

// Printable returns a text that is safe to show on one line of a terminal:
// breaks of lines and tabs become spaces, and whatever else a terminal would
// obey, or is not UTF-8, becomes U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Shorten cuts a name in its middle to at most most characters: both ends tell names apart.
func Shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most/2]) + "…" + string(r[len(r)-most/2+1:])
}

// maxExcerpt bounds the text of a device or a stranger, in bytes.
const maxExcerpt = 1 << 10

// Excerpt is Printable of at most 1 KiB, for text of a device or a stranger.
func Excerpt(s string) string {
	const more = " …"
	if len(s) > maxExcerpt {
		s = Printable(s[:maxExcerpt-len(more)]) + more
	} else {
		s = Printable(s)
	}
	for len(s) > maxExcerpt { // U+FFFD is longer than the byte that it stands for
		s = strings.ToValidUTF8(s[:maxExcerpt-len(more)], "") + more
	}
	return s
}
