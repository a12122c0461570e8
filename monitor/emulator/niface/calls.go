package niface

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// injected is an error that a fault wants of a method, once; f.mu is held.
func (f *Face) injected(method string) int32 {
	code := f.faults.fail[method]
	delete(f.faults.fail, method)
	return code
}

// CreateTask makes a session, or attaches to one. Sessions belong to the server:
// they outlive the connection that made them.
func (f *Face) CreateTask(ctx context.Context, q *nipb.CreateTaskRequest) (*nipb.CreateTaskResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if code := f.injected("CreateTask"); code != 0 {
		return nil, refuse(ctx, code)
	}
	name := q.GetSessionName()
	_, there := f.sessions[name]
	switch q.GetInitializationBehavior() {
	case nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_INITIALIZE_NEW:
		if there {
			return nil, status.Errorf(codes.AlreadyExists, "a session of the name '%s' exists", name)
		}
	case nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING:
		if !there {
			return nil, status.Errorf(codes.FailedPrecondition, "there is no session of the name '%s'", name)
		}
	}
	if !there {
		if name == "" {
			f.made++
			name = fmt.Sprintf("unnamed-%d", f.made)
		}
		f.sessions[name] = f.newTask(name)
	}
	return &nipb.CreateTaskResponse{Task: &nipb.Session{Name: name}, NewSessionInitialized: !there}, nil
}

// with runs what a call does to a task.
func (f *Face) with(ctx context.Context, method string, s *nipb.Session, do func(*task) int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.sessions[s.GetName()]
	if t == nil {
		return refuse(ctx, errInvalidTask)
	}
	if code := f.injected(method); code != 0 {
		return refuse(ctx, code)
	}
	if code := do(t); code != 0 {
		return refuse(ctx, code)
	}
	return nil
}

// CreateAIVoltageChan adds an input.
func (f *Face) CreateAIVoltageChan(ctx context.Context, q *nipb.CreateAIVoltageChanRequest) (*nipb.CreateAIVoltageChanResponse, error) {
	switch {
	case q.GetTerminalConfigEnum() == nil:
		return nil, unset("terminal_config")
	case q.GetUnitsEnum() == nil:
		return nil, unset("units")
	}
	// Of the two arms one is zero.
	terminal, units := int32(q.GetTerminalConfig())+q.GetTerminalConfigRaw(), int32(q.GetUnits())+q.GetUnitsRaw()
	return &nipb.CreateAIVoltageChanResponse{}, f.with(ctx, "CreateAIVoltageChan", q.GetTask(), func(t *task) int32 {
		if nipb.VoltageUnits(units) != nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS || q.GetCustomScaleName() != "" {
			return errValue
		}
		return t.add(q.GetNameToAssignToChannel(), q.GetPhysicalChannel(), terminal, q.GetMinVal(), q.GetMaxVal())
	})
}

// CfgSampClkTiming sets the clock; what the device cannot keep is told later.
func (f *Face) CfgSampClkTiming(ctx context.Context, q *nipb.CfgSampClkTimingRequest) (*nipb.CfgSampClkTimingResponse, error) {
	switch {
	case q.GetActiveEdgeEnum() == nil:
		return nil, unset("active_edge")
	case q.GetSampleModeEnum() == nil:
		return nil, unset("sample_mode")
	}
	edge, mode := int32(q.GetActiveEdge())+q.GetActiveEdgeRaw(), int32(q.GetSampleMode())+q.GetSampleModeRaw()
	return &nipb.CfgSampClkTimingResponse{}, f.with(ctx, "CfgSampClkTiming", q.GetTask(), func(t *task) int32 {
		finite := nipb.SampleMode(mode) == nipb.SampleMode_SAMPLE_MODE_FINITE
		switch {
		case t.running:
			return errNotWhileRunning
		case len(t.chans) == 0:
			return errNoChannels
		case nipb.Edge(edge) != nipb.Edge_EDGE_RISING || q.GetSource() != "" || !(q.GetRate() > 0),
			!finite && nipb.SampleMode(mode) != nipb.SampleMode_SAMPLE_MODE_CONTINUOUS:
			return errValue
		}
		t.rate, t.finite, t.samps = q.GetRate(), finite, q.GetSampsPerChan()
		return 0
	})
}

// CfgInputBuffer sets the buffer's size.
func (f *Face) CfgInputBuffer(ctx context.Context, q *nipb.CfgInputBufferRequest) (*nipb.CfgInputBufferResponse, error) {
	return &nipb.CfgInputBufferResponse{}, f.with(ctx, "CfgInputBuffer", q.GetTask(), func(t *task) int32 {
		if t.running {
			return errNotWhileRunning
		}
		t.buffer = uint64(q.GetNumSampsPerChan())
		return 0
	})
}

// StartTask begins to sample.
func (f *Face) StartTask(ctx context.Context, q *nipb.StartTaskRequest) (*nipb.StartTaskResponse, error) {
	return &nipb.StartTaskResponse{}, f.with(ctx, "StartTask", q.GetTask(), (*task).begin)
}

// StopTask ends sampling. A task that had failed says so once more.
func (f *Face) StopTask(ctx context.Context, q *nipb.StopTaskRequest) (*nipb.StopTaskResponse, error) {
	return &nipb.StopTaskResponse{}, f.with(ctx, "StopTask", q.GetTask(), func(t *task) int32 {
		code := t.failed
		t.end()
		t.failed = 0
		return code
	})
}

// ClearTask ends a task and its session.
func (f *Face) ClearTask(ctx context.Context, q *nipb.ClearTaskRequest) (*nipb.ClearTaskResponse, error) {
	return &nipb.ClearTaskResponse{}, f.with(ctx, "ClearTask", q.GetTask(), func(t *task) int32 {
		t.end()
		delete(f.sessions, t.name)
		return 0
	})
}
