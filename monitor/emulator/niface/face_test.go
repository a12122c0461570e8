package niface

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// serve puts a face on a TCP port of this machine.
func serve(t *testing.T, p pace.Pace, cfg Config) (*Face, string) {
	t.Helper()
	b, err := board.New(board.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(b, p, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f, l.Addr().String()
}

func dial(t *testing.T, address string) nipb.NiDAQmxClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return nipb.NewNiDAQmxClient(conn)
}

// ready makes a task of two inputs.
func ready(t *testing.T, c nipb.NiDAQmxClient, rate float64, mode nipb.SampleMode, n uint64) *nipb.Session {
	t.Helper()
	made, err := c.CreateTask(t.Context(), &nipb.CreateTaskRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s := made.GetTask()
	for _, ai := range []string{"Dev1/ai0", "Dev1/ai1"} {
		// The arms that the driver does not use.
		_, err := c.CreateAIVoltageChan(t.Context(), &nipb.CreateAIVoltageChanRequest{
			Task: s, PhysicalChannel: ai, MinVal: -10, MaxVal: 10,
			TerminalConfigEnum: &nipb.CreateAIVoltageChanRequest_TerminalConfigRaw{TerminalConfigRaw: 10083},
			UnitsEnum:          &nipb.CreateAIVoltageChanRequest_UnitsRaw{UnitsRaw: 10348},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.CfgSampClkTiming(t.Context(), &nipb.CfgSampClkTimingRequest{
		Task: s, Rate: rate, SampsPerChan: n,
		ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdgeRaw{ActiveEdgeRaw: 10280},
		SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleModeRaw{SampleModeRaw: int32(mode)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const continuous, finite = nipb.SampleMode_SAMPLE_MODE_CONTINUOUS, nipb.SampleMode_SAMPLE_MODE_FINITE

func TestSessions(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	const (
		either = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_UNSPECIFIED
		fresh  = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_INITIALIZE_NEW
		attach = nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING
	)
	for i, step := range []struct {
		name string
		how  nipb.SessionInitializationBehavior
		code codes.Code
		made bool
	}{
		{"a", attach, codes.FailedPrecondition, false},
		{"a", fresh, codes.OK, true},
		{"a", fresh, codes.AlreadyExists, false},
		{"a", attach, codes.OK, false},
		{"a", either, codes.OK, false},
		{"b", either, codes.OK, true},
		{"", either, codes.OK, true},
		{"", fresh, codes.OK, true},
		{"", attach, codes.FailedPrecondition, false},
	} {
		// Each over a connection of its own: sessions belong to the server.
		r, err := dial(t, at).CreateTask(t.Context(), &nipb.CreateTaskRequest{SessionName: step.name, InitializationBehavior: step.how})
		if status.Code(err) != step.code || r.GetNewSessionInitialized() != step.made {
			t.Errorf("step %d: %v, %v", i, r, err)
		}
		if name := r.GetTask().GetName(); err == nil && (name == "" || step.name != "" && name != step.name) {
			t.Errorf("step %d: called %q", i, name)
		}
	}
}

// One task at a time has the device.
func TestTheDeviceIsReserved(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c := dial(t, at)
	one, two := ready(t, c, 1000, continuous, 1000), ready(t, c, 1000, continuous, 1000)
	if _, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: one}); err != nil {
		t.Fatal(err)
	}
	var trailer metadata.MD
	_, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: two}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.Unknown || trailer.Get("ni-error")[0] != "-50103" {
		t.Errorf("%v, %v", err, trailer)
	}
	if _, err := c.ClearTask(t.Context(), &nipb.ClearTaskRequest{Task: one}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartTask(t.Context(), &nipb.StartTaskRequest{Task: two}); err != nil {
		t.Error(err)
	}
}

func TestRailsThatAreNotThere(t *testing.T) {
	b, err := board.New(board.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rails := range [][]string{{"none"}, make([]string, 17)} {
		if _, err := New(b, pace.Pace{}, Config{Rails: rails}); err == nil {
			t.Errorf("%q taken", rails)
		}
	}
}
