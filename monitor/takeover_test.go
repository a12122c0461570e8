package monitor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
)

// An operator ends a holder's capture: the next in line has the bench, and what was
// sampled can be read, with who did it and why.
func TestTakeOver(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	end := func(q *wattmarkv1.EndCaptureRequest, want codes.Code) *wattmarkv1.EndCaptureResponse {
		t.Helper()
		a, err := client.EndCapture(t.Context(), q)
		if status.Code(err) != want {
			t.Fatalf("%v: want %v", err, want)
		}
		return a
	}
	q := &wattmarkv1.EndCaptureRequest{By: "root@lab", Reason: "fire drill"}
	end(q, codes.NotFound)
	held, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		_, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "bob@lab", Wait: durationpb.New(time.Minute)})
		next <- err
	}()
	end(&wattmarkv1.EndCaptureRequest{By: "root@lab"}, codes.InvalidArgument)
	a := end(&wattmarkv1.EndCaptureRequest{CaptureId: held.CaptureId, By: q.By, Reason: q.Reason}, codes.OK)
	if a.CaptureId != held.CaptureId || a.Holder != "ada@lab" || a.State != wattmarkv1.CaptureState_CAPTURE_STATE_INCOMPLETE ||
		!strings.HasPrefix(a.Reason, "taken over by root@lab: fire drill; no samples after scan") {
		t.Errorf("%v", a)
	}
	if err := <-next; err != nil {
		t.Errorf("the next in line: %v", err)
	}
	got, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: held.CaptureId, Untrimmed: true}, 0)
	if got.trailer == nil || len(got.chunks) == 0 || !strings.Contains(got.trailer.Summary.Reason, "fire drill") {
		t.Errorf("%v, %v", got.trailer, errors.Join(err))
	}
}
