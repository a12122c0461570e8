package api

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"wattmark/api/wattmarkv1"
)

// maxPaths bounds a field mask.
const maxPaths = 256

// mask is a tree of the fields wanted: one without branches is wanted as a whole.
// A nil mask wants all.
type mask map[protoreflect.Name]mask

// parseMask reads the fields of Task that are wanted; nil for all.
func parseMask(m *fieldmaskpb.FieldMask) (mask, error) {
	paths := m.GetPaths()
	if len(paths) == 0 {
		return nil, nil
	}
	if len(paths) > maxPaths {
		return nil, invalid("read_mask", "%d paths: at most %d", len(paths), maxPaths)
	}
	root := mask{}
	for _, path := range paths {
		if !root.add((*wattmarkv1.Task)(nil).ProtoReflect().Descriptor(), path) {
			return nil, invalid("read_mask", "%q is not a field of Task: name fields as in task_id or energy.energy_j", path)
		}
	}
	return root, nil
}

// add adds a path; it is false for one that there is not.
func (m mask) add(message protoreflect.MessageDescriptor, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	f := message.Fields().ByName(protoreflect.Name(name))
	if f == nil || deeper && (f.Message() == nil || f.IsList() || f.IsMap()) {
		return false
	}
	sub, there := m[f.Name()]
	switch {
	case !deeper:
		m[f.Name()] = nil // the whole field takes in what is named of it
		return true
	case !there:
		sub = mask{}
		m[f.Name()] = sub
	case sub == nil:
		sub = mask{} // it is wanted as a whole already: only check the path
	}
	return sub.add(f.Message(), rest)
}

// names reports whether a field is named itself.
func (m mask) names(field protoreflect.Name) bool {
	_, ok := m[field]
	return ok
}

// apply clears what is not wanted.
func (m mask) apply(message interface{ ProtoReflect() protoreflect.Message }) {
	if m != nil {
		m.prune(message.ProtoReflect())
	}
}

func (m mask) prune(message protoreflect.Message) {
	message.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch sub, wanted := m[f.Name()]; {
		case !wanted:
			message.Clear(f)
		case sub != nil:
			sub.prune(v.Message())
		}
		return true
	})
}
