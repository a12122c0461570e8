package nidaqmx

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// Kind is the driver's name in bench files.
const Kind = "nidaqmx"

// Device is a task on NI's server. It implements instrument.Instrument.
type Device struct {
	address  string
	opts     Options
	identity instrument.Identity
	inputs   instrument.Inputs

	conn *grpc.ClientConn
	api  nipb.NiDAQmxClient
	task *nipb.Session
	// left says that a session of ours may still be on the server: the line broke
	// before it could be cleared. It is nobody else's, so it may be taken over.
	left         bool
	simultaneous bool
	moved        bool // reads do not begin where the last one ended
}

// New makes a driver; nothing is opened yet. The address is tcp:host:port.
func New(address string, o Options) (*Device, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Kind, err)
	}
	d := &Device{address: address, opts: o.clone()}
	d.inputs = Inputs(d.opts)
	d.identity = instrument.Identity{Kind: Kind, Address: address}
	return d, nil
}

// Identity is the device's, once it was opened.
func (d *Device) Identity() instrument.Identity { return d.identity }

// Inputs are the channels of the scan: with the device's own scale, rate and skew
// once it was opened.
func (d *Device) Inputs() instrument.Inputs { return d.inputs }

// Open connects, identifies the device, makes the task, and reads back what the
// device makes of it.
func (d *Device) Open(ctx context.Context) error {
	if d.conn != nil {
		return fmt.Errorf("%s: open %s: already open", Kind, d.address)
	}
	conn, err := connect(d.address)
	if err != nil {
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	d.conn, d.api = conn, nipb.NewNiDAQmxClient(conn)
	err = d.identify(ctx)
	if err == nil {
		err = d.begin(ctx)
	}
	if err == nil {
		err = d.setUp(ctx)
	}
	if err != nil {
		_ = d.Close()
		return fmt.Errorf("%s: open %s: %w", Kind, d.address, err)
	}
	return nil
}

// identify asks the device what it is.
func (d *Device) identify(ctx context.Context) error {
	name := d.opts.Device
	product, err := call(ctx, callTime, d.api.GetDeviceAttributeString, &nipb.GetDeviceAttributeStringRequest{
		DeviceName:    name,
		AttributeEnum: &nipb.GetDeviceAttributeStringRequest_Attribute{Attribute: nipb.DeviceStringAttribute_DEVICE_STRING_ATTRIBUTE_PRODUCT_TYPE},
	})
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	serial, err := call(ctx, callTime, d.api.GetDeviceAttributeUInt32, &nipb.GetDeviceAttributeUInt32Request{
		DeviceName:    name,
		AttributeEnum: &nipb.GetDeviceAttributeUInt32Request_Attribute{Attribute: nipb.DeviceUInt32Attribute_DEVICE_U_INT32_ATTRIBUTE_SERIAL_NUM},
	})
	if err != nil {
		return fmt.Errorf("serial number of %s: %w", name, err)
	}
	if want, _ := strconv.ParseUint(d.opts.Serial, 16, 32); d.opts.Serial != "" && uint32(want) != serial.GetValue() {
		return fmt.Errorf("%w: %s has the serial number %X, not %s", instrument.ErrIdentity, name, serial.GetValue(), strings.ToUpper(d.opts.Serial))
	}
	atOnce, err := call(ctx, callTime, d.api.GetDeviceAttributeBool, &nipb.GetDeviceAttributeBoolRequest{
		DeviceName:    name,
		AttributeEnum: &nipb.GetDeviceAttributeBoolRequest_Attribute{Attribute: nipb.DeviceBoolAttribute_DEVICE_BOOL_ATTRIBUTE_AI_SIMULTANEOUS_SAMPLING_SUPPORTED},
	})
	if err != nil {
		return fmt.Errorf("how %s samples: %w", name, err)
	}
	major, err := d.system(ctx, nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MAJOR_VERSION)
	if err != nil {
		return fmt.Errorf("the driver's version: %w", err)
	}
	minor, err := d.system(ctx, nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MINOR_VERSION)
	if err != nil {
		return fmt.Errorf("the driver's version: %w", err)
	}
	d.simultaneous = atOnce.GetValue()
	d.identity.Model, d.identity.Serial = product.GetValue(), fmt.Sprintf("%X", serial.GetValue())
	d.identity.Firmware = fmt.Sprintf("NI-DAQmx %d.%d", major, minor)
	return nil
}

// begin makes the session. Sessions outlive connections and programs: one that
// is there already is somebody's, unless it is known to be ours.
func (d *Device) begin(ctx context.Context) error {
	err := d.create(ctx)
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	if !d.left && !d.opts.TakeOver {
		return fmt.Errorf("%w: session %q exists on the server: another program measures, or one that crashed left it behind; "+
			"if none does, set take_over: true, or name another session", err, d.opts.Session)
	}
	if err := d.takeOver(ctx); err != nil {
		return fmt.Errorf("take over session %q: %w", d.opts.Session, err)
	}
	return d.create(ctx)
}

func (d *Device) create(ctx context.Context) error {
	r, err := call(ctx, callTime, d.api.CreateTask, &nipb.CreateTaskRequest{
		SessionName: d.opts.Session, InitializationBehavior: nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_INITIALIZE_NEW,
	})
	if err != nil {
		return fmt.Errorf("make a task: %w", err)
	}
	d.task, d.left, d.moved = r.GetTask(), true, false
	return nil
}

// takeOver attaches to the session that is there, and clears it.
func (d *Device) takeOver(ctx context.Context) error {
	r, err := call(ctx, callTime, d.api.CreateTask, &nipb.CreateTaskRequest{
		SessionName: d.opts.Session, InitializationBehavior: nipb.SessionInitializationBehavior_SESSION_INITIALIZATION_BEHAVIOR_ATTACH_TO_EXISTING,
	})
	if status.Code(err) == codes.FailedPrecondition {
		return nil // it has gone by itself
	}
	if err != nil {
		return err
	}
	_, err = call(ctx, callTime, d.api.ClearTask, &nipb.ClearTaskRequest{Task: r.GetTask()})
	return err
}

// Close clears the task, so that the device is free for others, and hangs up.
func (d *Device) Close() error {
	if d.conn == nil {
		return nil
	}
	if d.task != nil {
		// Closing has no context of its own; what it may take is bounded here.
		_, err := call(context.Background(), lastTime, d.api.ClearTask, &nipb.ClearTaskRequest{Task: d.task})
		d.left = err != nil && driverCode(err) != invalidTask
		d.task = nil
	}
	err := d.conn.Close()
	d.conn, d.api = nil, nil
	return err
}
