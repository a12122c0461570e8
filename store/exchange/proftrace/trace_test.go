package proftrace_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/store/exchange/proftrace"
)

// kineto is of the form that torch.profiler writes: base time before or behind the events, times in µs.
const kineto = `{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 485, "tid": 485, "ts": 4874869255294.280, "dur": 9117.474, "args": {"External id": 1}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 485, "tid": 511, "ts": 4874869259902.436, "dur": 20.770},
 {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 485, "tid": 511, "ts": 4874869259903.000, "dur": 2, "args": {"correlation": 7}},
 {"ph": "X", "cat": "kernel", "name": "gemm \"a\"", "pid": 0, "tid": 7, "ts": 4874869259950.001, "dur": 100.5,
  "args": {"device": 0, "stream": 7, "correlation": 7, "grid": [1, 2, 3], "block": [32, 1, 1], "note": "}"}},
 {"ph": "X", "cat": "gpu_user_annotation", "name": "step", "pid": 0, "tid": 7, "ts": 4874869259950.001, "dur": 100.5, "args": {"External id": 1}},
 {"ph": "s", "id": 1, "pid": "Spans", "tid": "PyTorch", "ts": 1, "cat": "ac2g", "name": "ac2g"},
 {"name": "process_name", "ph": "M", "ts": 4874869255094.410, "pid": 485, "tid": 0, "args": {"name": "python3"}}
], "traceName": "a \"name\""}`

func read(t *testing.T, text string) *attribute.Trace {
	t.Helper()
	got, err := proftrace.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRead(t *testing.T) {
	const at = 1790857026000000000 + 4874869259950001
	want := &attribute.Trace{
		HostClock: true,
		Kernels: []attribute.Profiled{{
			Event: 3, Start: at, End: at + 100500, Name: `gemm "a"`, Stream: 7, Correlation: 7,
			Grid: [3]uint32{1, 2, 3}, Block: [3]uint32{32, 1, 1},
		}},
		Calls: map[uint32]attribute.Call{7: {Thread: 1, At: at - 47001}},
		Ranges: []attribute.Range{
			{Event: 0, From: at - 4655721, To: at + 4461753, Name: "step", External: 1},
			{Event: 1, From: at - 47565, To: at - 26795, Thread: 1, Name: "aten::mm", Op: true},
		},
		Devices: map[uint32]bool{0: true},
	}
	if diff := cmp.Diff(want, read(t, kineto)); diff != "" {
		t.Error(diff)
	}
	// Events alone, compressed, with ranges as begin and end: another clock.
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(`[{"ph":"B","cat":"user_annotation","name":"outer","pid":1,"tid":1,"ts":1},
		{"ph":"B","cat":"user_annotation","name":"inner","pid":1,"tid":1,"ts":1.5},{"ph":"E","pid":1,"tid":1,"ts":2},
		{"ph":"E","pid":1,"tid":1,"ts":2.25e0},{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":-0.5,"dur":1,"args":{"device":0,"correlation":1}}]`))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := proftrace.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	ranges := []attribute.Range{{Event: 1, From: 1500, To: 2000, Name: "inner"}, {From: 1000, To: 2250, Name: "outer"}}
	if diff := cmp.Diff(ranges, got.Ranges); diff != "" || got.HostClock || got.Kernels[0].Start != -500 {
		t.Errorf("%s, %+v", diff, got.Kernels)
	}
}

func TestReadRefuses(t *testing.T) {
	kernel := `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"device":0,"correlation":1}}`
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", "EOF"},
		"a number":          {"7", "begins with 7"},
		"no kernels":        {`{"traceEvents":[]}`, "ProfilerActivity.CUDA"},
		"cut short":         {kineto[:900], "unexpected EOF"},
		"never closed":      {`[{"ph":"B","cat":"user_annotation","name":"loop","pid":1,"tid":1,"ts":1},` + kernel + `]`, `"loop" begins and never ends`},
		"no correlation":    {strings.ReplaceAll("["+kernel+"]", `,"correlation":1`, ""), "without correlation"},
		"a negative kind":   {strings.ReplaceAll("["+kernel+"]", `"dur":1`, `"dur":-1`), "a length"},
		"a moment in words": {`[{"ph":"X","ts":"now","dur":1,"cat":"kernel","name":"k","pid":0,"tid":7},` + kernel + `]`, "event 0: json"},
		"an absurd moment":  {strings.ReplaceAll("["+kernel+"]", `"ts":1`, `"ts":1e300`), "a time"},
	} {
		if _, err := proftrace.Read(strings.NewReader(c.text)); !errors.Is(err, proftrace.ErrTrace) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The trace stays as it was but for the arguments and counters that are added.
func TestWrite(t *testing.T) {
	marks := proftrace.Marks{
		Events:   map[int]attribute.Mark{1: {Share: part(0.5, 0.1), Busy: 1e-4}, 3: {Share: part(0.25, 0.125), Busy: 1e-4}},
		External: map[int64]attribute.Mark{1: {Share: part(2, 1), Busy: 3}},
		Counters: []string{"power"}, Fault: func() error { return nil }, About: map[string]int{"task_id": 7},
		Powers: iter.Seq2[int64, []measure.Watt](func(yield func(int64, []measure.Watt) bool) {
			_ = yield(1790857026000000000+4874869259950002, []measure.Watt{123.5})
		}),
	}
	var b bytes.Buffer
	if err := proftrace.Write(&b, strings.NewReader(kineto), marks); err != nil {
		t.Fatal(err)
	}
	var was, is map[string]any
	if err := errors.Join(json.Unmarshal([]byte(kineto), &was), json.Unmarshal(b.Bytes(), &is)); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	events := was["traceEvents"].([]any)
	add := func(n int, e, u, busy float64) {
		x := events[n].(map[string]any)
		args, _ := x["args"].(map[string]any)
		if args == nil {
			args = map[string]any{}
			x["args"] = args
		}
		args["energy_j"], args["energy_u_j"], args["gpu_busy_s"] = e, u, busy
	}
	add(1, 0.5, 0.1, 1e-4)
	add(3, 0.25, 0.125, 1e-4)
	add(4, 2, 1, 3)
	was["traceEvents"] = append(events, map[string]any{
		"ph": "M", "name": "process_name", "pid": -7552.0, "tid": 0.0, "ts": 0.0, "args": map[string]any{"name": "wattmark"},
	}, map[string]any{
		"ph": "C", "name": "power", "pid": -7552.0, "tid": 0.0, "ts": 4874869259950.002, "args": map[string]any{"W": 123.5},
	})
	was["wattmark"] = map[string]any{"task_id": 7.0}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Error(diff)
	}
	// Written again, it has the energies once.
	if _, err := proftrace.Read(&b); err != nil {
		t.Error(err)
	}
}

// nsysExport makes a database as nsys export does, with what is read of it.
func nsysExport(t *testing.T, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report 1.sqlite")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range append([]string{
		`CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INT, utcTime TEXT, localTime TEXT)`,
		`INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES(1790857026000000000,'','')`,
		`CREATE TABLE StringIds(id INT, value TEXT)`,
		`INSERT INTO StringIds VALUES(1,'void gemm<float>(int)'),(2,'cudaLaunchKernel_v7000'),(3,'forward')`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,
			globalPid INT, demangledName INT, shortName INT, mangledName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(5000,6500,0,1,7,42,0,1,1,1,8,1,1,128,1,1)`,
		`CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, eventClass INT, globalTid INT, correlationId INT, nameId INT)`,
		`INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(4000,4100,0,281479271743489,42,2),(1,2,0,281479271743489,41,2)`,
		`CREATE TABLE NVTX_EVENTS(start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT, domainId INT)`,
		`INSERT INTO NVTX_EVENTS VALUES(3000,4500,59,NULL,281479271743489,3,0),(3000,NULL,34,'a mark',281479271743489,NULL,0)`,
	}, more...) {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestConvert(t *testing.T) {
	var b bytes.Buffer
	if err := proftrace.Convert(t.Context(), &b, nsysExport(t)); err != nil {
		t.Fatal(err)
	}
	const base = 1790857026000000000
	want := &attribute.Trace{
		HostClock: true,
		Kernels: []attribute.Profiled{{
			Start: base + 5000, End: base + 6500, Name: "void gemm<float>(int)", Stream: 7, Correlation: 42,
			Grid: [3]uint32{8, 1, 1}, Block: [3]uint32{128, 1, 1},
		}},
		Calls:   map[uint32]attribute.Call{42: {Thread: 1, At: base + 4000}},
		Ranges:  []attribute.Range{{Event: 2, From: base + 3000, To: base + 4500, Thread: 1, Name: "forward"}},
		Devices: map[uint32]bool{0: true},
	}
	if diff := cmp.Diff(want, read(t, b.String())); diff != "" {
		t.Error(diff)
	}
	for want, more := range map[string]string{
		`"loop" begins and never ends`: `INSERT INTO NVTX_EVENTS VALUES(1,NULL,60,'loop',1,NULL,0)`,
		"no kernels":                   `DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL`,
		"no time of its begin":         `DROP TABLE TARGET_INFO_SESSION_START_TIME`,
	} {
		if err := proftrace.Convert(t.Context(), &b, nsysExport(t, more)); !errors.Is(err, proftrace.ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := proftrace.Convert(t.Context(), &b, os.DevNull); !errors.Is(err, proftrace.ErrTrace) {
		t.Errorf("got %v", err)
	}
}

const rocprofHead = `"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp",` +
	`"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"` + "\n"

// Tables as rocprofv3's documentation shows them.
const rocprofKernels = rocprofHead + `"KERNEL_DISPATCH","Agent 7",17,"void add<float>(float*, int)",101,1551401624448706,1551401624459226,64,1,1,1000,4,1
`

func TestConvertRocprof(t *testing.T) {
	head := `"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"` + "\n"
	tables := proftrace.Rocprof{
		Kernels: strings.NewReader(rocprofKernels),
		Calls: strings.NewReader(head + `"HIP_RUNTIME_API","hipLaunchKernel",238,239,101,1551401624440000,1551401624441000
"HIP_RUNTIME_API","hipFree",238,239,102,1551401624450000,1551401624450001
`),
		Ranges: strings.NewReader(head + `"MARKER_CORE_API","before",238,239,1,1551401624430000,1551401624430000
"MARKER_CORE_RANGE_API","step, ""one""",238,239,3,1551401624430000,1551401624450000
`),
	}
	var b bytes.Buffer
	if err := proftrace.ConvertRocprof(&b, tables); err != nil {
		t.Fatal(err)
	}
	want := &attribute.Trace{
		Kernels: []attribute.Profiled{{
			Start: 1551401624448706, End: 1551401624459226, Name: "void add<float>(float*, int)", Device: 7, Stream: 17,
			Correlation: 101, Grid: [3]uint32{16, 4, 1}, Block: [3]uint32{64, 1, 1},
		}},
		Calls:   map[uint32]attribute.Call{101: {Thread: 1, At: 1551401624440000}},
		Ranges:  []attribute.Range{{Event: 2, From: 1551401624430000, To: 1551401624450000, Thread: 1, Name: `step, "one"`}},
		Devices: map[uint32]bool{7: true},
	}
	if diff := cmp.Diff(want, read(t, b.String())); diff != "" {
		t.Error(diff)
	}
	for want, text := range map[string]string{
		"it is empty":                           "",
		"no kernels":                            rocprofHead,
		"column Start_Timestamp is missing":     `"KernelName","BeginNs","EndNs"` + "\nk,1,2\n",
		"line 2: End_Timestamp: it has no time": strings.ReplaceAll(rocprofKernels, "1551401624459226", "0"),
		"ends 1 ns before":                      strings.ReplaceAll(rocprofKernels, "1551401624459226", "1551401624448705"),
		"column Kernel_Name is missing":         strings.ReplaceAll(rocprofKernels, "Kernel_Name", "Name"),
		`line 2: Agent_Id: "GPU x"`:             strings.ReplaceAll(rocprofKernels, "Agent 7", "GPU x"),
		"line 3: 2 fields":                      rocprofKernels + "1,2\n",
	} {
		err := proftrace.ConvertRocprof(io.Discard, proftrace.Rocprof{Kernels: strings.NewReader(text)})
		if !errors.Is(err, proftrace.ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A table that is converted is a trace that can be read.
func FuzzConvertRocprof(f *testing.F) {
	f.Add([]byte(rocprofKernels))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if proftrace.ConvertRocprof(&out, proftrace.Rocprof{Kernels: bytes.NewReader(b)}) != nil {
			return
		}
		if _, err := proftrace.Read(&out); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(kineto))
	f.Add([]byte(`[{"ph":"B","cat":"user_annotation","name":"x","ts":1}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := proftrace.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		marks := proftrace.Marks{Events: map[int]attribute.Mark{}, Fault: func() error { return nil }}
		marks.Powers = func(func(int64, []measure.Watt) bool) {}
		for _, k := range got.Kernels {
			marks.Events[k.Event] = attribute.Mark{Share: part(1, 0)}
		}
		if err := proftrace.Write(&out, bytes.NewReader(b), marks); err != nil {
			t.Fatalf("it is read, but not written: %v", err)
		}
		again, err := proftrace.Read(bytes.NewReader(out.Bytes()))
		if err != nil || len(again.Kernels) != len(got.Kernels) {
			t.Fatalf("written, it is not read: %v\n%s", err, &out)
		}
	})
}

// A trace that torch.profiler wrote on an H100.
func TestReadOfAnH100(t *testing.T) {
	f, err := os.Open("../../../testdata/h200/profiler/trace.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := proftrace.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for _, r := range got.Ranges {
		named[r.Name]++
	}
	launched := 0
	for _, k := range got.Kernels {
		if c, ok := got.Calls[k.Correlation]; ok && c.At < k.Start {
			launched++
		}
	}
	if len(got.Kernels) != 540 || launched != 540 || named["train_step"] != 30 || named["aten::mm"] == 0 || !got.HostClock {
		t.Errorf("%d kernels, %d with their calls, ranges %v", len(got.Kernels), launched, named)
	}
}

func part(energy, u measure.Joule) measure.Share {
	return measure.Share{Estimate: measure.Estimate{Energy: energy, U: u}}
}
