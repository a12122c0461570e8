package perfetto_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"wattmark/store/exchange"
	"wattmark/store/exchange/internal/made"
)

// perfettosOwn compiles the schema in a checkout of Perfetto, which is no part of
// this repository: WATTMARK_PERFETTO names it.
func perfettosOwn(t *testing.T) *protoregistry.Files {
	t.Helper()
	dir := os.Getenv("WATTMARK_PERFETTO")
	if dir == "" {
		t.Skip("WATTMARK_PERFETTO names no checkout of github.com/google/perfetto")
	}
	out := filepath.Join(t.TempDir(), "trace.ds")
	said, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "grpc_tools.protoc", "-I"+dir, "--include_imports",
		"--descriptor_set_out="+out, "protos/perfetto/trace/trace.proto").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Perfetto's whole schema has every field and value of our table, by number, name and
// type, and reads a trace of ours without a byte left over.
func TestPerfettosOwnSchema(t *testing.T) {
	files := perfettosOwn(t)
	table, err := trace()
	if err != nil {
		t.Fatal(err)
	}
	ours := table.ParentFile().Messages()
	n := 0
	for i := range ours.Len() {
		m := ours.Get(i)
		theirs := find(t, files, m.Name()).(protoreflect.MessageDescriptor)
		for k := range m.Fields().Len() {
			f := m.Fields().Get(k)
			g := theirs.Fields().ByNumber(f.Number())
			if g == nil || g.Name() != f.Name() || g.IsList() != f.IsList() || !sameKind(f, g) {
				t.Errorf("%s.%s %d: Perfetto has %v", m.Name(), f.Name(), f.Number(), g)
			}
			n++
		}
	}
	for line := range strings.Lines(strings.TrimSpace(values)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		d, err := files.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if v, ok := d.(protoreflect.EnumValueDescriptor); !ok || fmt.Sprint(v.Number()) != number {
			t.Errorf("%s: %v, want %s", name, d, number)
		}
		n++
	}
	t.Logf("%d fields and values are Perfetto's", n)
	whole := dynamicpb.NewMessage(find(t, files, "Trace").(protoreflect.MessageDescriptor))
	f, _ := made.NewFull(4000)
	if err := proto.Unmarshal(written(t, timeline(t, f, exchange.Choice{})), whole); err != nil {
		t.Fatal(err)
	}
	if left := (msg{whole}).unknown(); len(left) > 0 || len((msg{whole}).all("packet")) < 100 {
		t.Errorf("Perfetto's schema does not know fields of ours in %v", left)
	}
}

// find returns a message by its own name; Clock is within ClockSnapshot.
func find(t *testing.T, files *protoregistry.Files, name protoreflect.Name) protoreflect.Descriptor {
	t.Helper()
	full := "perfetto.protos." + protoreflect.FullName(name)
	if name == "Clock" {
		full = "perfetto.protos.ClockSnapshot.Clock"
	}
	d, err := files.FindDescriptorByName(full)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func sameKind(ours, theirs protoreflect.FieldDescriptor) bool {
	if theirs.Kind() == protoreflect.EnumKind {
		return ours.Kind() == protoreflect.Uint32Kind
	}
	return ours.Kind() == theirs.Kind() && (ours.Message() == nil || ours.Message().Name() == theirs.Message().Name())
}
