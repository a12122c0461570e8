package cupti

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"wattmark/measure/marker"
)

// EnvSelection holds a Selection as JSON; without it no kernel is bracketed.
const EnvSelection = "WATTMARK_SELECTION"

// Selection says which launches get markers of their own, and what markers.
type Selection struct {
	// Kernel is a regular expression (RE2) that a part of the kernel's symbol, as the
	// compiler mangled it, must match. A CUDA graph's launch is called cuGraphLaunch.
	Kernel string `json:"kernel"`
	// Every is the distance of bracketed launches among those of one name, from the
	// first on.
	Every int `json:"every"`
	// AtMost is how many launches of a process are bracketed.
	AtMost int         `json:"at_most"`
	Marker marker.Spec `json:"marker"`
}

// ErrSelection is wrapped by errors about a Selection that cannot be.
var ErrSelection = errors.New("kernels cannot be selected so")

// Validate checks a selection and returns its expression.
func (s *Selection) Validate() (*regexp.Regexp, error) {
	re, err := regexp.Compile(s.Kernel)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSelection, err)
	case s.Every < 1:
		return nil, fmt.Errorf("%w: every %d launches: want 1 or more", ErrSelection, s.Every)
	case s.AtMost < 1:
		return nil, fmt.Errorf("%w: at most %d launches: want 1 or more", ErrSelection, s.AtMost)
	}
	return re, s.Marker.Validate()
}

// ParseSelection reads what EnvSelection holds.
func ParseSelection(text string) (Selection, *regexp.Regexp, error) {
	var s Selection
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, nil, fmt.Errorf("%w: %s: %w", ErrSelection, EnvSelection, err)
	}
	re, err := s.Validate()
	return s, re, err
}
