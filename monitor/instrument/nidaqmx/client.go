package nidaqmx

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"wattmark/monitor/instrument/nidaqmx/nipb"
	"wattmark/monitor/transport"
)

const (
	callTime = 5 * time.Second // of a call that only sets or asks
	lastTime = 2 * time.Second // of what is told to a device that is left
	maxReply = 256 << 20       // bytes; gRPC's own limit of 4 MB is less than a read
)

// connect reaches the server. Its line is neither encrypted nor authenticated.
func connect(address string) (*grpc.ClientConn, error) {
	a, err := transport.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if a.Scheme != "tcp" {
		return nil, fmt.Errorf("%w %q: NI's gRPC Device Server is reached over TCP: tcp:host:31763", transport.ErrAddress, address)
	}
	d := net.Dialer{Timeout: callTime, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	return grpc.NewClient("passthrough:///"+a.Target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) { return d.DialContext(ctx, "tcp", target) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
}

// reply is any response of the driver's.
type reply interface{ GetStatus() int32 }

// call makes one call within a time. An error of the driver is a *DriverError,
// also one that the server tells in a response's status; notYetAvailable is no
// error.
func call[Q any, R reply](ctx context.Context, within time.Duration, f func(context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	own, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var trailer metadata.MD
	began := time.Now()
	r, err := f(own, request, grpc.Trailer(&trailer))
	if err != nil {
		return r, fault(ctx, err, trailer, time.Since(began)-within)
	}
	if s := r.GetStatus(); s < 0 && s != notYetAvailable {
		return r, &DriverError{Code: s}
	}
	return r, nil
}

// setRead sets where reads begin, or what happens to unread samples.
func (d *Device) setRead(ctx context.Context, attribute nipb.ReadInt32Attribute, value int32) error {
	_, err := call(ctx, callTime, d.api.SetReadAttributeInt32, &nipb.SetReadAttributeInt32Request{
		Task:          d.task,
		AttributeEnum: &nipb.SetReadAttributeInt32Request_Attribute{Attribute: attribute},
		ValueEnum:     &nipb.SetReadAttributeInt32Request_ValueRaw{ValueRaw: value},
	})
	return err
}

// position is the number of the sample at which the last read ended.
func (d *Device) position(ctx context.Context) (uint64, error) {
	r, err := call(ctx, callTime, d.api.GetReadAttributeUInt64, &nipb.GetReadAttributeUInt64Request{
		Task:          d.task,
		AttributeEnum: &nipb.GetReadAttributeUInt64Request_Attribute{Attribute: nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_CURR_READ_POS},
	})
	return r.GetValue(), err
}

// timing reads a number of the task's timing.
func (d *Device) timing(ctx context.Context, a nipb.TimingDoubleAttribute) (float64, error) {
	r, err := call(ctx, callTime, d.api.GetTimingAttributeDouble, &nipb.GetTimingAttributeDoubleRequest{
		Task: d.task, AttributeEnum: &nipb.GetTimingAttributeDoubleRequest_Attribute{Attribute: a},
	})
	return r.GetValue(), err
}

// system reads a number of the driver itself.
func (d *Device) system(ctx context.Context, a nipb.SystemUInt32Attribute) (uint32, error) {
	r, err := call(ctx, callTime, d.api.GetSystemInfoAttributeUInt32, &nipb.GetSystemInfoAttributeUInt32Request{
		AttributeEnum: &nipb.GetSystemInfoAttributeUInt32Request_Attribute{Attribute: a},
	})
	return r.GetValue(), err
}
