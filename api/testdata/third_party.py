#!/usr/bin/python3
"""A client of TaskService that shares no code with wattmark.

usage: third_party.py PROTO_DIR ADDRESS

Stubs are generated from PROTO_DIR with grpc_tools, then tasks are listed by
user, by name and in pages, and samples are read, calibrated and raw. What it
found is printed as one JSON object; judging it is the caller's business.
"""
import json
import os
import sys
import tempfile

import grpc
import grpc_tools
from google.protobuf import field_mask_pb2
from grpc_tools import protoc

STUB_DEADLINE_S = 20


def generate(proto_dir, out):
    """Make the stubs, and stop if protoc does not like the files."""
    files = ["wattmark/v1/common.proto", "wattmark/v1/monitor.proto", "wattmark/v1/task.proto"]
    # The well-known types (google/protobuf) come with grpc_tools.
    well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    rc = protoc.main(["protoc", "-I" + proto_dir, "-I" + well_known,
                      "--python_out=" + out, "--grpc_python_out=" + out] + files)
    if rc != 0:
        sys.exit("protoc failed")
    sys.path.insert(0, out)


def pages(stub, task_pb2, **query):
    """All tasks of a query, one a page."""
    found, token = [], ""
    while True:
        page = stub.ListTasks(task_pb2.ListTasksRequest(page_size=1, page_token=token, **query),
                              timeout=STUB_DEADLINE_S)
        found += [[t.task_id, t.user, t.name] for t in page.tasks]
        token = page.next_page_token
        if not token:
            return found


def samples(stub, task_pb2, task_id):
    """Time, power, current and voltage of every sample, and the gaps."""
    out = {"seq": [], "t_s": [], "power_w": [], "current_a": [], "voltage_v": [], "gaps": [], "rails": []}
    for item in stub.ReadSamples(task_pb2.ReadSamplesRequest(task_id=task_id), timeout=STUB_DEADLINE_S):
        which = item.WhichOneof("item")
        if which == "event":
            out["gaps"].append([item.event.first_scan, item.event.scans])
            continue
        batch = item.samples
        out["seq"] += range(batch.first_seq, batch.first_seq + len(batch.t_s))
        out["t_s"] += batch.t_s
        out["power_w"] += batch.power_w
        out["rails"] = [r.rail for r in batch.rails]
        out["current_a"] += batch.rails[0].current_a
        out["voltage_v"] += batch.rails[0].voltage_v
    return out


def later_calls(stub, task_pb2):
    """Orders, masks, totals, envelopes, energies, timelines, sums and a watch."""
    deadline = {"timeout": STUB_DEADLINE_S}
    listed = stub.ListTasks(task_pb2.ListTasksRequest(
        order=task_pb2.TASK_ORDER_NAME, ascending=True, with_totals=True,
        read_mask=field_mask_pb2.FieldMask(paths=["name"])), **deadline)
    envelope = stub.ReadEnvelope(task_pb2.ReadEnvelopeRequest(
        task_id=1, from_s=0.2, to_s=0.21, columns=5, rails=["slot"]), **deadline)
    watch = stub.WatchTasks(task_pb2.WatchTasksRequest(), **deadline)
    first = next(watch)
    watch.cancel()
    return {
        "names": [[t.name, t.task_id] for t in listed.tasks],
        "total": [listed.totals.tasks, listed.totals.energy.energy_j],
        "envelope": [[s.rail, list(s.column), list(s.max_w)] for s in envelope.series],
        "span_j": stub.ReadEnergy(task_pb2.ReadEnergyRequest(task_id=1), **deadline).energy.energy_j,
        "kernels": stub.ReadTimeline(task_pb2.ReadTimelineRequest(task_id=1), **deadline).kernels,
        "sums": [[r.key, r.totals.tasks] for r in stub.Aggregate(
            task_pb2.AggregateRequest(by=task_pb2.AGGREGATE_BY_USER), **deadline).rows],
        "watch": task_pb2.TaskEvent.Name(first.event),
    }


def label_calls(stub, task_pb2):
    """Tags, a pin and notes, and tasks found by them."""
    deadline = {"timeout": STUB_DEADLINE_S}
    mask = field_mask_pb2.FieldMask(paths=["tags.node", "tags.never", "pinned"])
    task = stub.UpdateTask(task_pb2.UpdateTaskRequest(
        task_id=2, task=task_pb2.Task(tags={"node": "核-3"}, pinned=True), update_mask=mask), **deadline).task
    notes = [stub.CreateNote(task_pb2.CreateNoteRequest(task_id=2, note=task_pb2.Note(text=t)), **deadline).note.number
             for t in ["fan at 40 %", "fan stands"]]
    stub.DeleteNote(task_pb2.DeleteNoteRequest(task_id=2, number=1), **deadline)
    whole = stub.GetTask(task_pb2.GetTaskRequest(task_id=2), **deadline)
    return {
        "labels": [dict(task.tags), task.pinned, notes, [n.text for n in whole.notes], whole.HasField("provenance")],
        "by_label": [
            pages(stub, task_pb2, tags=["node=核-3"]), pages(stub, task_pb2, without_tags=["node"]), pages(stub, task_pb2, search="FAN stand")],
        "bad_label": refused(lambda: stub.ListTasks(task_pb2.ListTasksRequest(tags=["a b"]), **deadline)),
    }


def refused(call):
    """The code and message with which a call is refused."""
    try:
        call()
    except grpc.RpcError as e:
        return [e.code().name, e.details()]
    return ["OK", ""]


def main(proto_dir, address):
    stubs = tempfile.TemporaryDirectory()
    generate(proto_dir, stubs.name)
    from wattmark.v1 import task_pb2, task_pb2_grpc  # only now do they exist

    with grpc.insecure_channel(address) as channel:
        stub = task_pb2_grpc.TaskServiceStub(channel)
        task = stub.GetTask(task_pb2.GetTaskRequest(task_id=1), timeout=STUB_DEADLINE_S)
        chunks = [c.chunk for c in stub.ReadSamples(
            task_pb2.ReadSamplesRequest(task_id=1, raw=True), timeout=STUB_DEADLINE_S)
            if c.WhichOneof("item") == "chunk"]
        users = stub.ListUsers(task_pb2.ListUsersRequest(), timeout=STUB_DEADLINE_S).users
        result = {
            "by_user": pages(stub, task_pb2, user="ada"),
            "by_name": pages(stub, task_pb2, name="gemm"),
            "by_prefix": pages(stub, task_pb2, name="ax*"),
            "all": pages(stub, task_pb2),
            "users": [[u.user, u.tasks] for u in users],
            "energy_j": task.task.energy.energy_j,
            "window": [task.window.from_s, task.window.to_s],
            "samples": samples(stub, task_pb2, 1),
            "chunks": [[c.chunk_no, c.first_scan, c.scans, len(c.payload)] for c in chunks],
            "missing": refused(lambda: stub.GetTask(task_pb2.GetTaskRequest(task_id=99), timeout=STUB_DEADLINE_S)),
            "bad": refused(lambda: stub.ListTasks(task_pb2.ListTasksRequest(page_size=-1), timeout=STUB_DEADLINE_S)),
        }
        result |= later_calls(stub, task_pb2)
        result |= label_calls(stub, task_pb2)
        result["deleted"] = stub.DeleteTasks(task_pb2.DeleteTasksRequest(user="bob"), timeout=STUB_DEADLINE_S).deleted
        result["left"] = pages(stub, task_pb2)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
