#!/usr/bin/python3
"""A client of NI's NiDAQmx service that shares no code with wattmark.

usage: foreign_client.py PROTO_DIR ADDRESS

Stubs are generated from PROTO_DIR with grpc_tools. It measures as a user's own
script would, in both arms of the enums, and makes the mistakes that scripts
make. What it found is printed as one JSON object; judging it is the caller's
business.
"""
import json
import struct
import sys
import tempfile

import grpc
from grpc_tools import protoc

DEADLINE_S = 20


def generate(proto_dir, out):
    """Make the stubs, and stop if protoc does not like the files."""
    files = ["nidevice_grpc/session.proto", "nidaqmx_grpc/nidaqmx.proto"]
    if protoc.main(["protoc", "-I" + proto_dir, "--python_out=" + out, "--grpc_python_out=" + out] + files) != 0:
        sys.exit("protoc failed")
    sys.path.insert(0, out)


def failure(call, request):
    """Code and trailers of a call that is to fail."""
    try:
        call(request, timeout=DEADLINE_S)
    except grpc.RpcError as e:
        return [e.code().name, {k: v for k, v in e.trailing_metadata() if k.startswith("ni-")}]
    return ["OK", {}]


def main():
    proto_dir, address = sys.argv[1:]
    with tempfile.TemporaryDirectory() as out:
        generate(proto_dir, out)
        from nidaqmx_grpc import nidaqmx_pb2 as ni, nidaqmx_pb2_grpc
        found = {}
        with grpc.insecure_channel(address) as channel:
            stub = nidaqmx_pb2_grpc.NiDAQmxStub(channel)

            def do(method, request):
                return getattr(stub, method)(request, timeout=DEADLINE_S)

            new, attach = 1, 2
            made = do("CreateTask", ni.CreateTaskRequest(session_name="script", initialization_behavior=new))
            task = made.task
            found["made"] = [made.status, task.name, made.new_session_initialized]
            found["again"] = failure(stub.CreateTask, ni.CreateTaskRequest(session_name="script", initialization_behavior=new))
            found["absent"] = failure(stub.CreateTask, ni.CreateTaskRequest(session_name="other", initialization_behavior=attach))
            # One input with plain numbers, the other with names.
            do("CreateAIVoltageChan", ni.CreateAIVoltageChanRequest(
                task=task, physical_channel="Dev1/ai0", name_to_assign_to_channel="volts", terminal_config_raw=10106,
                min_val=-10, max_val=10, units_raw=10348))
            do("CreateAIVoltageChan", ni.CreateAIVoltageChanRequest(
                task=task, physical_channel="Dev1/ai1", name_to_assign_to_channel="amperes",
                terminal_config=ni.TERMINAL_CONFIG_DEFAULT, min_val=-5, max_val=5, units=ni.VOLTAGE_UNITS_VOLTS))
            found["unset"] = failure(stub.CreateAIVoltageChan, ni.CreateAIVoltageChanRequest(
                task=task, physical_channel="Dev1/ai2", min_val=-5, max_val=5, units_raw=10348))
            found["device"] = failure(stub.CreateAIVoltageChan, ni.CreateAIVoltageChanRequest(
                task=task, physical_channel="Dev7/ai2", terminal_config_raw=-1, min_val=-5, max_val=5, units_raw=10348))
            other = do("CreateTask", ni.CreateTaskRequest(session_name="list")).task
            count = ni.GetTaskAttributeUInt32Request(task=other, attribute=ni.TASK_U_INT32_ATTRIBUTE_NUM_CHANS)
            found["list"] = []
            for inputs in ["Dev1/ai3:0, Dev1/ai16", "Dev1/ai4:5, Dev1/ai32", "Dev1/ai7"]:
                found["list"].append(failure(stub.CreateAIVoltageChan, ni.CreateAIVoltageChanRequest(
                    task=other, physical_channel=inputs, terminal_config_raw=-1, min_val=-5, max_val=5, units_raw=10348))[1])
                found["list"].append(do("GetTaskAttributeUInt32", count).value)
            do("ClearTask", ni.ClearTaskRequest(task=other))
            found["text"] = do("GetErrorString", ni.GetErrorStringRequest(error_code=-200220)).error_string
            do("CfgSampClkTiming", ni.CfgSampClkTimingRequest(
                task=task, rate=10000, active_edge_raw=10280, sample_mode_raw=10123, samps_per_chan=100000))
            do("CfgInputBuffer", ni.CfgInputBufferRequest(task=task, num_samps_per_chan=100000))
            found["buffer"] = do("GetBufferAttributeUInt32", ni.GetBufferAttributeUInt32Request(task=task, attribute_raw=6252)).value
            found["rate"] = do("GetTimingAttributeDouble", ni.GetTimingAttributeDoubleRequest(task=task, attribute_raw=4932)).value
            found["convert"] = do("GetTimingAttributeDouble", ni.GetTimingAttributeDoubleRequest(task=task, attribute_raw=6216)).value
            scale = list(do("GetChanAttributeDoubleArray", ni.GetChanAttributeDoubleArrayRequest(
                task=task, channel="amperes", attribute_raw=6448)).value)
            found["model"] = do("GetDeviceAttributeString", ni.GetDeviceAttributeStringRequest(device_name="Dev1", attribute_raw=1585)).value
            do("StartTask", ni.StartTaskRequest(task=task))
            raw = do("ReadRaw", ni.ReadRawRequest(task=task, num_samps_per_chan=1000, timeout=5, array_size_in_bytes=4000))
            codes = struct.unpack("<2000h", raw.read_array)
            found["raw"] = [raw.status, raw.samps_read, raw.num_bytes_per_samp, len(raw.read_array)]
            found["raw_amperes"] = sum(sum(c * x ** p for p, c in enumerate(scale)) for x in codes[1::2]) / 1000 * 10
            f64 = do("ReadAnalogF64", ni.ReadAnalogF64Request(
                task=task, num_samps_per_chan=1000, timeout=5, fill_mode=ni.FILL_MODE_GROUP_BY_CHANNEL, array_size_in_samps=2000))
            found["volts"] = sum(f64.read_array[:1000]) / 1000 * 2
            found["amperes"] = sum(f64.read_array[1000:]) / 1000 * 10
            late = do("ReadRaw", ni.ReadRawRequest(task=task, num_samps_per_chan=90000, timeout=0.05, array_size_in_bytes=360000))
            found["late"] = [late.status, 0 < late.samps_read < 90000]
            found["small"] = failure(stub.ReadRaw, ni.ReadRawRequest(task=task, num_samps_per_chan=1000, timeout=5, array_size_in_bytes=3999))
            position = do("GetReadAttributeUInt64", ni.GetReadAttributeUInt64Request(task=task, attribute_raw=4641)).value
            found["position"] = position - late.samps_read
            do("StopTask", ni.StopTaskRequest(task=task))
            do("ClearTask", ni.ClearTaskRequest(task=task))
            found["cleared"] = failure(stub.StartTask, ni.StartTaskRequest(task=task))
        print(json.dumps(found))


main()
