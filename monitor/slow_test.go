package monitor

import (
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
)

// Readers and viewers that take nothing hold up neither the capture nor others, and
// cost no memory.
func TestReadersThatDoNotRead(t *testing.T) {
	cfg := rampConfig(t.TempDir())
	rate, fill, more := 4e6, uint64(18<<20), uint64(24<<20) // some 20 MB a second are kept
	if racing {
		rate, fill, more = 5e5, 18<<20, 4<<20 // what cannot be stored in time waits in memory
	}
	cfg.Bench.Instrument = &ramp{rate: rate}
	client, _, _ := serve(t, cfg)
	start, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab", Lease: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		r, err := client.ReadCapture(t.Context(), &wattmarkv1.ReadCaptureRequest{CaptureId: start.CaptureId, Follow: true, Untrimmed: true})
		if err == nil {
			_, err = r.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.WatchRails(t.Context(), &wattmarkv1.WatchRailsRequest{Every: durationpb.New(time.Microsecond)})
		if err == nil {
			_, err = w.Header()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// By then each reader has had its window's fill, and waits.
	before := taken(t, client, start.CaptureId, fill)
	middle := heap()
	after := taken(t, client, start.CaptureId, before+more)
	// What a busy machine has yet to store goes by itself; what readers keep does not.
	grown := heap() - middle
	for end := time.Now().Add(time.Minute); grown > 12<<20 && time.Now().Before(end); grown = heap() - middle {
		<-time.After(5 * time.Millisecond)
	}
	if grown > 12<<20 {
		t.Errorf("the heap grew by %d bytes while %d were kept", grown, after-before)
	}
	sum, err := client.StopCapture(t.Context(), &wattmarkv1.StopCaptureRequest{CaptureId: start.CaptureId})
	if err != nil || sum.Summary.State != wattmarkv1.CaptureState_CAPTURE_STATE_COMPLETE || sum.Summary.ScansLost != 0 {
		t.Fatalf("%v, %v", sum, err)
	}
	// One that reads has all of it.
	got, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: start.CaptureId, Untrimmed: true}, 0)
	if got.trailer == nil || got.trailer.Scans != sum.Summary.Scans {
		t.Errorf("%v of %d scans, %v", got.trailer, sum.Summary.Scans, err)
	}
}

// taken waits until a capture has so many bytes, and returns how many it has.
func taken(t *testing.T, client wattmarkv1.MonitorServiceClient, id string, size uint64) uint64 {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		l, err := client.ListCaptures(t.Context(), &wattmarkv1.ListCapturesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range l.Captures {
			if c.CaptureId == id && c.SpoolBytes >= size {
				return c.SpoolBytes
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the capture does not get to %d bytes", size)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
