package pace

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestFreePaceNeverWaits(t *testing.T) {
	var p Pace
	done := time.Duration(0)
	for range 1000 {
		<-p.Wait(done)
		if due := p.Due(done); due != done+2*time.Millisecond {
			t.Fatalf("after %v comes %v", done, due)
		}
		done = p.Due(done)
	}
}

func TestPacedRunsAtItsSpeed(t *testing.T) {
	for _, speed := range []float64{0, 0.5, 1, 20} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			p := Pace{Epoch: begin, Speed: speed, Batch: 5 * time.Millisecond}
			done := time.Duration(0)
			for done < time.Second {
				<-p.Wait(done)
				next := p.Due(done)
				if next-done < p.Batch-time.Microsecond || next-done > p.Batch+time.Millisecond {
					t.Fatalf("speed %v: a batch of %v", speed, next-done)
				}
				done = next
			}
			want := time.Duration(float64(time.Second) / max(p.speed(), 0))
			if wall := time.Since(begin); wall < want || wall > want+20*time.Millisecond {
				t.Errorf("speed %v: a board second took %v", speed, wall)
			}
		})
	}
}
