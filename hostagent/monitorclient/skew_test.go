package monitorclient

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
)

// A monitor of another version: what it speaks decides whether it is refused,
// bridged with a word, or nothing is said.
func TestVersionSkew(t *testing.T) {
	ours := wire.Speaks
	at := func(major, minor uint32) *wattmarkv1.Protocol {
		return &wattmarkv1.Protocol{Major: major, Minor: minor}
	}
	for _, tc := range []struct {
		name    string
		speaks  *wattmarkv1.Protocol
		refused []string
		bridged []string
	}{
		{"the same", at(ours.Major, ours.Minor), nil, nil},
		{"before versions were told", nil, nil, []string{"monitor (wattmark 9.8.7, protocol 1.0)", "is older than this host (wattmark 1.2.3, protocol " + ours.String()}},
		{"a later addition", at(ours.Major, ours.Minor+1), nil, []string{"9.8.7", "is newer than this host", "1.2.3"}},
		{"the next major", at(ours.Major+1, 0), []string{"wattmark 9.8.7 and speaks protocol 2.0", "wattmark 1.2.3 and speaks " + ours.String(), "update this host"}, nil},
		{"the major before", at(ours.Major-1, 9), []string{"9.8.7", "speaks protocol 0.9", "update the monitor"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &server{bench: &wattmarkv1.GetBenchResponse{Name: "desk", Version: "9.8.7", Protocol: tc.speaks}}
			b, err := serve(t, s, Options{Version: "1.2.3"}).GetBench(t.Context())
			if (err != nil) != (tc.refused != nil) || err != nil && !errors.Is(err, ErrVersion) {
				t.Fatalf("got %v", err)
			}
			for _, w := range tc.refused {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not told: %v", w, err)
				}
			}
			if (b.Bridged != "") != (tc.bridged != nil) {
				t.Errorf("bridged: %q", b.Bridged)
			}
			for _, w := range tc.bridged {
				if !strings.Contains(b.Bridged, w) {
					t.Errorf("%q is not told: %s", w, b.Bridged)
				}
			}
		})
	}
}

// What a future monitor may send must not be read before it is refused.
func TestIncompatibleMonitorIsNotRead(t *testing.T) {
	s := &server{bench: &wattmarkv1.GetBenchResponse{
		Version: "3.0.0", Protocol: &wattmarkv1.Protocol{Major: 3}, GpuUuid: "not what it is today",
	}}
	if _, err := serve(t, s, Options{}).GetBench(t.Context()); !errors.Is(err, ErrVersion) || strings.Contains(err.Error(), "gpu_uuid") {
		t.Errorf("got %v", err)
	}
}

// A newer monitor refuses this host by itself.
func TestMonitorRefusesThisHost(t *testing.T) {
	s := &server{answer: func(method string, _ int) error {
		if method != "Start" {
			return nil
		}
		return status.Error(codes.Unimplemented, "the host is wattmark 1.2.3 and speaks protocol 1.1, this monitor is wattmark 3.0.0 and speaks 3.0: update the host")
	}}
	_, err := serve(t, s, Options{Version: "1.2.3"}).Start(t.Context(), StartRequest{Holder: "a@b"})
	if !errors.Is(err, ErrVersion) || errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "3.0.0") || !strings.Contains(err.Error(), "update the host") {
		t.Errorf("got %v", err)
	}
}
