package monitor

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
)

// spawn starts a monitor in a process of its own.
func spawn(t *testing.T, dir string) (client pb.MonitorServiceClient, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "WATTMARK_TEST_SPOOL="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill() // SIGKILL
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child did not start: %v", err)
	}
	client, _ = dial(t, strings.TrimSpace(addr))
	return client, kill
}

// TestKilledMonitor kills the monitor with SIGKILL in the middle of a capture
// and of a stream that follows it. What the reader had is all there afterwards,
// and the capture says where it ends.
func TestKilledMonitor(t *testing.T) {
	dir := t.TempDir()
	client, kill := spawn(t, dir)
	started, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab", TaskName: "gemm"})
	if err != nil {
		t.Fatal(err)
	}
	id := started.CaptureId
	q := &pb.ReadCaptureRequest{CaptureId: id, Follow: true, Untrimmed: true}
	had, err := read(t, client, q, 12)
	if err != nil {
		t.Fatal(err)
	}
	more := make(chan received)
	go func() {
		r, err := read(t, client, q, 0)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a stream of a monitor that was killed ended with %v", err)
		}
		more <- r
	}()
	had2, err := read(t, client, q, 20)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	last := <-more
	for _, r := range []received{had, had2} {
		if len(r.chunks) > len(last.chunks) {
			last = r
		}
	}

	client, _ = spawn(t, dir)
	list, err := client.ListCaptures(t.Context(), &pb.ListCapturesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Captures) != 1 || list.Captures[0].CaptureId != id || list.Captures[0].Holder != "ada@lab" ||
		list.Captures[0].State != pb.CaptureState_CAPTURE_STATE_INCOMPLETE {
		t.Fatalf("captures after the restart: %v", list)
	}
	whole, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: id, Follow: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	scans := whole.check(t, 0)
	sum := whole.trailer.Summary
	if sum.State != pb.CaptureState_CAPTURE_STATE_INCOMPLETE || sum.Scans != scans || whole.trailer.Scans != scans ||
		!strings.HasPrefix(sum.Reason, "monitor restarted; ") || !strings.Contains(sum.Reason, "no samples after scan") {
		t.Errorf("trailer %v, %d scans came", whole.trailer, scans)
	}
	if len(whole.chunks) < len(last.chunks) {
		t.Fatalf("%d chunks were acknowledged, %d survived", len(last.chunks), len(whole.chunks))
	}
	for i, c := range last.chunks {
		if w := whole.chunks[i]; w.Crc32C != c.Crc32C || w.FirstScan != c.FirstScan || w.Scans != c.Scans {
			t.Fatalf("chunk %d was %v+%d, is %v+%d", i, c.FirstScan, c.Scans, w.FirstScan, w.Scans)
		}
	}
	resumed, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: id, FromChunk: uint64(len(last.chunks)), Follow: true}, 0)
	if err != nil || resumed.trailer.Crc32C != whole.trailer.Crc32C {
		t.Errorf("resumed: %v, %v", resumed.trailer, err)
	}
	resumed.check(t, uint64(len(last.chunks)))
	if _, err := client.ReleaseCapture(t.Context(), &pb.ReleaseCaptureRequest{CaptureId: id}); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left in the spool: %v, %v", left, err)
	}
}

// TestKilledAgainAndAgain restarts the monitor over captures that were ended in
// every way; none changes once it has ended.
func TestKilledAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	trailers := map[string]uint32{}
	for range 3 {
		client, kill := spawn(t, dir)
		list, err := client.ListCaptures(t.Context(), &pb.ListCapturesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Captures {
			r, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: c.CaptureId}, 0)
			if err != nil {
				t.Fatal(err)
			}
			r.check(t, 0)
			if was, ok := trailers[c.CaptureId]; ok && was != r.trailer.Crc32C {
				t.Errorf("capture %s changed", c.CaptureId)
			}
			trailers[c.CaptureId] = r.trailer.Crc32C
		}
		for _, stop := range []bool{true, false} {
			s, err := client.StartCapture(t.Context(), &pb.StartCaptureRequest{Holder: "ada@lab"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := read(t, client, &pb.ReadCaptureRequest{CaptureId: s.CaptureId, Follow: true, Untrimmed: true}, 4); err != nil {
				t.Fatal(err)
			}
			if stop {
				if _, err := client.StopCapture(t.Context(), &pb.StopCaptureRequest{CaptureId: s.CaptureId}); err != nil {
					t.Fatal(err)
				}
			}
		}
		kill()
	}
	if len(trailers) != 4 {
		t.Errorf("%d captures were seen again, want 4", len(trailers))
	}
}
