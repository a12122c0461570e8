package monitor

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
)

// A host that says nothing, or something compatible, is served; one of another
// major version is refused with both versions, and holds nothing.
func TestHostsOfOtherVersions(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	for _, tc := range []struct {
		name    string
		speaks  *wattmarkv1.Protocol
		refused []string
	}{
		{"older, says nothing", nil, nil},
		{"a later addition", &wattmarkv1.Protocol{Major: wire.Speaks.Major, Minor: 99}, nil},
		{"newer", &wattmarkv1.Protocol{Major: wire.Speaks.Major + 1}, []string{"host is wattmark 7.7.7 and speaks protocol 2.0", "monitor is wattmark test and speaks " + wire.Speaks.String(), "update the monitor"}},
		{"too old", &wattmarkv1.Protocol{Minor: 3}, []string{"protocol 0.3", "update the host"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab", Protocol: tc.speaks, Version: "7.7.7"})
			if tc.refused == nil {
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range []func() error{
					func() error {
						_, err := client.StopCapture(t.Context(), &wattmarkv1.StopCaptureRequest{CaptureId: a.CaptureId})
						return err
					},
					func() error {
						_, err := client.ReleaseCapture(t.Context(), &wattmarkv1.ReleaseCaptureRequest{CaptureId: a.CaptureId})
						return err
					},
				} {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}
				return
			}
			if status.Code(err) != codes.Unimplemented {
				t.Fatalf("got %v", err)
			}
			for _, w := range tc.refused {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not told: %v", w, err)
				}
			}
		})
	}
	b, err := client.GetBench(t.Context(), &wattmarkv1.GetBenchRequest{})
	if err != nil || b.Holder != "" || wire.ParseProtocol(b.Protocol) != wire.Speaks {
		t.Errorf("bench %v, %v", b, err)
	}
}
