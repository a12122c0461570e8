package niface

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// An enum with neither arm is refused before anything else is looked at.
func TestUnsetArms(t *testing.T) {
	_, at := serve(t, pace.Pace{}, Config{})
	c, ctx := dial(t, at), t.Context()
	refusedBy := func(what string, call func() error) {
		t.Helper()
		if err := call(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	units := &nipb.CreateAIVoltageChanRequest_Units{Units: nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS}
	config := &nipb.CreateAIVoltageChanRequest_TerminalConfigRaw{TerminalConfigRaw: -1}
	refusedBy("terminal", func() error {
		_, err := c.CreateAIVoltageChan(ctx, &nipb.CreateAIVoltageChanRequest{UnitsEnum: units})
		return err
	})
	refusedBy("units", func() error {
		_, err := c.CreateAIVoltageChan(ctx, &nipb.CreateAIVoltageChanRequest{TerminalConfigEnum: config})
		return err
	})
	refusedBy("edge", func() error {
		_, err := c.CfgSampClkTiming(ctx, &nipb.CfgSampClkTimingRequest{SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleModeRaw{}})
		return err
	})
	refusedBy("mode", func() error {
		_, err := c.CfgSampClkTiming(ctx, &nipb.CfgSampClkTimingRequest{ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdgeRaw{}})
		return err
	})
	refusedBy("volts", func() error { _, err := c.ReadAnalogF64(ctx, &nipb.ReadAnalogF64Request{}); return err })
	refusedBy("codes", func() error { _, err := c.ReadBinaryI16(ctx, &nipb.ReadBinaryI16Request{}); return err })
	refusedBy("timing", func() error {
		_, err := c.GetTimingAttributeDouble(ctx, &nipb.GetTimingAttributeDoubleRequest{})
		return err
	})
	refusedBy("u32", func() error {
		_, err := c.GetReadAttributeUInt32(ctx, &nipb.GetReadAttributeUInt32Request{})
		return err
	})
	refusedBy("u64", func() error {
		_, err := c.GetReadAttributeUInt64(ctx, &nipb.GetReadAttributeUInt64Request{})
		return err
	})
	refusedBy("set", func() error { _, err := c.SetReadAttributeInt32(ctx, &nipb.SetReadAttributeInt32Request{}); return err })
	refusedBy("value", func() error {
		_, err := c.SetReadAttributeInt32(ctx, &nipb.SetReadAttributeInt32Request{AttributeEnum: &nipb.SetReadAttributeInt32Request_AttributeRaw{}})
		return err
	})
	refusedBy("scale", func() error {
		_, err := c.GetChanAttributeDoubleArray(ctx, &nipb.GetChanAttributeDoubleArrayRequest{})
		return err
	})
	refusedBy("buffer", func() error {
		_, err := c.GetBufferAttributeUInt32(ctx, &nipb.GetBufferAttributeUInt32Request{})
		return err
	})
	refusedBy("product", func() error {
		_, err := c.GetDeviceAttributeString(ctx, &nipb.GetDeviceAttributeStringRequest{})
		return err
	})
	refusedBy("serial", func() error {
		_, err := c.GetDeviceAttributeUInt32(ctx, &nipb.GetDeviceAttributeUInt32Request{})
		return err
	})
	refusedBy("how", func() error {
		_, err := c.GetDeviceAttributeBool(ctx, &nipb.GetDeviceAttributeBoolRequest{})
		return err
	})
	refusedBy("version", func() error {
		_, err := c.GetSystemInfoAttributeUInt32(ctx, &nipb.GetSystemInfoAttributeUInt32Request{})
		return err
	})
}
