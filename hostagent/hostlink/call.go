package hostlink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/hostagent"
	"wattmark/hostagent/measurement"
	"wattmark/measure/marker"
	"wattmark/store"
)

// errVanished: the stream ended before the measurement.
var errVanished = fmt.Errorf("%w vanished", ErrProgram)

// call is one program's measurement on the daemon's side.
type call struct {
	stream  grpc.BidiStreamingServer[wattmarkv1.MeasureRequest, wattmarkv1.MeasureResponse]
	cancel  context.CancelCauseFunc
	answers chan *wattmarkv1.Done
	who     string // for eyes: the program and its process
	ids     uint64 // of commands

	sending sync.Mutex

	task  store.TaskID // by Server.mu
	phase measurement.Phase
}

func (c *call) send(m *wattmarkv1.MeasureResponse) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.Send(m)
}

// listen takes what the program says until it has no more to say. However that
// ends, the measurement is given up then: after the outcome nobody listens.
func (c *call) listen() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.cancel(fmt.Errorf("%w (%s)", errVanished, c.who))
			return
		}
		switch e := m.Event.(type) {
		case *wattmarkv1.MeasureRequest_Done:
			select {
			case c.answers <- e.Done:
			default:
				c.cancel(fmt.Errorf("%w: an answer to no command", wire.ErrMessage))
			}
		case *wattmarkv1.MeasureRequest_Cancel:
			c.cancel(fmt.Errorf("%w: %s", errCancelled, wire.Text(e.Cancel.GetReason())))
		default:
			c.cancel(fmt.Errorf("%w: a measurement is open already", wire.ErrMessage))
		}
	}
}

// ask gives the program a command and waits for the answer.
func (c *call) ask(ctx context.Context, command *wattmarkv1.Command) (*wattmarkv1.Done, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.ids++
	command.Id = c.ids
	if err := c.send(&wattmarkv1.MeasureResponse{Event: &wattmarkv1.MeasureResponse_Command{Command: command}}); err != nil {
		return nil, fmt.Errorf("%w (%s)", errVanished, c.who)
	}
	select {
	case done := <-c.answers:
		if done.GetId() != c.ids {
			return nil, fmt.Errorf("%w: an answer to command %d, %d was given", wire.ErrMessage, done.GetId(), c.ids)
		}
		if f := done.GetFailure(); f != nil {
			return nil, fmt.Errorf("%w: %s", ErrProgram, wire.Text(f.GetText()))
		}
		return done, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// end tells the program what it came to.
func (c *call) end(task store.Brief, err error) error {
	o := &wattmarkv1.MeasureOutcome{Failure: failure(err)}
	if task.ID != 0 {
		o.Task = outcome(&task)
	}
	if err := c.send(&wattmarkv1.MeasureResponse{Event: &wattmarkv1.MeasureResponse_Outcome{Outcome: o}}); err != nil {
		return status.Errorf(codes.Unavailable, "the outcome could not be told: %v", err)
	}
	return nil
}

// device is the program's GPU as a measurement on the daemon's side sees it.
type device struct {
	info  hostagent.Info
	opens bool // once it is told to
	call  *call
}

func (d *device) Info() hostagent.Info { return d.info }

func (d *device) WarmUp(ctx context.Context, t time.Duration) error {
	_, err := d.call.ask(ctx, &wattmarkv1.Command{What: &wattmarkv1.Command_WarmUp{WarmUp: &wattmarkv1.WarmUp{Duration: duration(t)}}})
	return err
}

func (d *device) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (hostagent.Played, error) {
	done, err := d.call.ask(ctx, &wattmarkv1.Command{What: &wattmarkv1.Command_PlayMarker{PlayMarker: &wattmarkv1.PlayMarker{
		Marker: wire.MarkerSpec(spec), Kind: wattmarkv1.MarkerKind(kind),
	}}})
	if err != nil {
		return hostagent.Played{}, err
	}
	return parsePlayed(kind, done.GetPlayed())
}

// open lets the program open its GPU, which is known then.
func (d *device) open(ctx context.Context) error {
	done, err := d.call.ask(ctx, &wattmarkv1.Command{What: &wattmarkv1.Command_OpenGpu{OpenGpu: &wattmarkv1.OpenGpu{}}})
	if err != nil {
		return err
	}
	d.info, err = parseGPU(done.GetGpu())
	return err
}

// work lets the program work.
func (d *device) work(ctx context.Context) ([]hostagent.Kernel, error) {
	done, err := d.call.ask(ctx, &wattmarkv1.Command{What: &wattmarkv1.Command_Work{Work: &wattmarkv1.Work{}}})
	if err != nil {
		return nil, err
	}
	return parseParts(done.GetParts())
}

// RunBenchmark is never asked of a program: its work is its own.
func (d *device) RunBenchmark(context.Context, hostagent.Benchmark, time.Duration) ([]hostagent.Kernel, error) {
	return nil, errors.ErrUnsupported
}

// Close leaves the program its GPU.
func (d *device) Close() error { return nil }
