package kernels

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrPTX is wrapped by errors about a PTX file that cannot be launched as asked.
var ErrPTX = errors.New("unusable PTX")

// Entry is a kernel that a PTX file declares.
type Entry struct {
	Name string
	// Params holds the size of each parameter, in bytes.
	Params []int
}

var (
	commentRE = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	entryRE   = regexp.MustCompile(`\.entry\s+([A-Za-z0-9_$%]+)\s*(\(([^)]*)\))?`)
	paramRE   = regexp.MustCompile(`\.param\b.*?\.(b|u|s|f)(8|16|32|64)\b`)
	arrayRE   = regexp.MustCompile(`\[\s*(\d{1,6})\s*\]\s*$`)
)

// Entries lists the kernels of a PTX text. The driver reads as many bytes a
// parameter as the kernel declares, so that a launch with the wrong list would
// read past its end: the list is checked here first.
func Entries(source []byte) ([]Entry, error) {
	text := commentRE.ReplaceAllString(strings.TrimRight(string(source), "\x00"), " ")
	if !strings.Contains(text, ".version") || !strings.Contains(text, ".target") {
		return nil, fmt.Errorf("%w: no .version and .target line: is this PTX text?", ErrPTX)
	}
	var out []Entry
	for _, m := range entryRE.FindAllStringSubmatch(text, -1) {
		e := Entry{Name: m[1]}
		if strings.TrimSpace(m[3]) != "" {
			for _, p := range strings.Split(m[3], ",") {
				size, err := paramSize(p)
				if err != nil {
					return nil, fmt.Errorf("%w: kernel %s: %w", ErrPTX, e.Name, err)
				}
				e.Params = append(e.Params, size)
			}
		}
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: it declares no kernel (.entry)", ErrPTX)
	}
	return out, nil
}

var typeBytes = map[string]int{"8": 1, "16": 2, "32": 4, "64": 8}

func paramSize(p string) (int, error) {
	p = strings.TrimSpace(p)
	m := paramRE.FindStringSubmatch(p)
	if m == nil {
		return 0, fmt.Errorf("cannot read the parameter %q", p)
	}
	size := typeBytes[m[2]]
	if a := arrayRE.FindStringSubmatch(p); a != nil {
		n := 0
		if _, err := fmt.Sscan(a[1], &n); err != nil || n <= 0 {
			return 0, fmt.Errorf("cannot read the length of the parameter %q", p)
		}
		size *= n
	}
	return size, nil
}

// Find returns one kernel of a PTX text; with an empty name, its only one.
func Find(source []byte, name string) (Entry, error) {
	all, err := Entries(source)
	if err != nil {
		return Entry{}, err
	}
	var names []string
	for _, e := range all {
		if e.Name == name || (name == "" && len(all) == 1) {
			return e, nil
		}
		names = append(names, e.Name)
	}
	if name == "" {
		return Entry{}, fmt.Errorf("%w: it declares %d kernels: name one of %s", ErrPTX, len(all), strings.Join(names, ", "))
	}
	return Entry{}, fmt.Errorf("%w: no kernel %s: it declares %s", ErrPTX, name, strings.Join(names, ", "))
}

// CheckLaunch reports a parameter list that the kernel does not have: first the
// buffers (8 bytes each), then the scalars (4 bytes each).
func (e Entry) CheckLaunch(buffers, scalars int) error {
	if buffers+scalars != len(e.Params) {
		return fmt.Errorf("%w: kernel %s takes %d parameters: %d buffers and %d scalars were given", ErrPTX, e.Name, len(e.Params), buffers, scalars)
	}
	for i, size := range e.Params {
		want, what := 8, "a buffer"
		if i >= buffers {
			want, what = 4, "a 32-bit scalar"
		}
		if size != want {
			return fmt.Errorf("%w: kernel %s: parameter %d has %d bytes, not the %d of %s", ErrPTX, e.Name, i, size, want, what)
		}
	}
	return nil
}
