// Package convert generates the conversions between domain types and the messages of
// wattmark.v1: files conversions.go beside the packages that use them.
//
//	pairs    which type and which message, the functions, and the exceptions from the rule of names
//	emit     writes a function, field by field
//
// A field and its partner have the same name, in any case, but for the unit that ends a message's:
// MaxScans ─ max_scans, Mean ─ mean_w. A field without a partner, on either side, that is no
// exception in the table is an error, so that nothing is lost silently.
package convert

import (
	"fmt"
	"go/format"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pair is a domain type and its message, with the functions that convert them.
type pair struct {
	folder          string // below api/wire's parent of the package that has the functions
	domain, message reflect.Type
	// build is func(D) *M, generated unless byHand.
	build string
	// read is func(*M) D, generated, with *wire.Fields before *M where fields can be refused; empty for none.
	read string
	// parse is func(*M) (D, error); fields of this type are read by it. It is generated where there is no read.
	parse string
	// byHand: all functions are written by hand; parseByHand: parse is.
	byHand, parseByHand bool
	// rules are exceptions, separated by spaces: Field=name_of_partner; -Field or -name without a partner;
	// >Field that is only built; ~Field whose text is built as it is, ^Field whose text is made printable when
	// it is read; ?Field that is built as 0 where it is NaN; .Field whose own fields are meant, as Field.Other.
	rules string
}

// field is a domain field with its partner.
type field struct {
	name    string
	domain  reflect.Type
	message reflect.StructField
	wire    string // the partner's name in the .proto file
	marks   string
}

var (
	unitSuffix = regexp.MustCompile(`_(s2|s|w|j|hz|v|a|ohm|db|rel|pct)$`)
	protoName  = regexp.MustCompile(`name=(\w+)`)
)

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// domainFields lists the fields of a struct, with those of embedded ones that are not fields by the rules.
func domainFields(t reflect.Type, rules map[string]string, left map[string]bool) (out []reflect.StructField) {
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && rules[f.Name] == "" && !left[f.Name]:
			out = append(out, domainFields(f.Type, rules, left)...)
		case rules["."+f.Name] != "":
			delete(rules, "."+f.Name)
			for _, sub := range domainFields(f.Type, rules, left) {
				sub.Name = f.Name + "." + sub.Name
				out = append(out, sub)
			}
		case f.IsExported():
			out = append(out, f)
		}
	}
	return out
}

// messageFields lists a message's fields by their names in the .proto file, in its order.
func messageFields(t reflect.Type) (names []string, by map[string]reflect.StructField) {
	by = map[string]reflect.StructField{}
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("protobuf_oneof")
		if m := protoName.FindStringSubmatch(f.Tag.Get("protobuf")); m != nil {
			name = m[1]
		}
		if name != "" {
			names, by[name] = append(names, name), f
		}
	}
	return names, by
}

// fields pairs the fields of p by their names and rules.
func (g *generator) fields(p *pair) (out []field, err error) {
	names, by := messageFields(p.message)
	rules, marks, left := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, r := range strings.Fields(p.rules) {
		if a, b, is := strings.Cut(r, "="); is {
			rules[a] = b
		} else if r[0] == '.' {
			rules[r] = r
		} else if r[0] == '-' {
			left[r[1:]] = true
		} else {
			marks[r[1:]] += r[:1]
		}
	}
	domain := p.domain
	if domain.Kind() == reflect.Pointer {
		domain = domain.Elem()
	}
	used := map[string]bool{}
	for _, f := range domainFields(domain, rules, left) {
		if left[f.Name] {
			delete(left, f.Name)
			continue
		}
		wire := partner(f, names, rules[f.Name], used)
		m, there := by[wire]
		if !there || used[wire] {
			return nil, fmt.Errorf("%v.%s has no partner in %v: name it by the rule %[2]s=name, or leave the field "+
				"out by -%[2]s", p.domain, f.Name, p.message)
		}
		used[wire] = true
		out = append(out, field{f.Name, f.Type, m, wire, marks[f.Name]})
		delete(marks, f.Name)
		delete(rules, f.Name)
	}
	for _, n := range names {
		if !used[n] && !left[n] {
			return nil, fmt.Errorf("%v.%s has no partner in %v: name it by the rule Field=%[2]s, or leave the field "+
				"out by -%[2]s", p.message, n, p.domain)
		}
		delete(left, n)
	}
	if len(rules)+len(left)+len(marks) > 0 {
		return nil, fmt.Errorf("%v: rules of fields that are not there: %v %v %v", p.domain, rules, left, marks)
	}
	return out, nil
}

// partner is the name of the message's field for f: by rule, by its JSON name, or by its own.
func partner(f reflect.StructField, names []string, rule string, used map[string]bool) string {
	if rule != "" {
		return rule
	}
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if tag != "-" && slices.Contains(names, tag) && !used[tag] {
		return tag
	}
	for _, n := range names {
		if !used[n] && (plain(n) == plain(f.Name) || plain(unitSuffix.ReplaceAllString(n, "")) == plain(f.Name)) {
			return n
		}
	}
	return ""
}

// generator writes the file of one folder.
type generator struct {
	folder string
	pairs  []pair
}

// of returns the pair of a domain type and a message, nil where there is none.
func (g *generator) of(domain, message reflect.Type) *pair {
	i := slices.IndexFunc(g.pairs, func(p pair) bool {
		return p.domain == domain && (p.message == message || reflect.PointerTo(p.message) == message)
	})
	if i < 0 {
		return nil
	}
	return &g.pairs[i]
}

// call is the name of a function of a pair, or of package wire, as this folder has it.
func (g *generator) call(folder, name string) string {
	if folder == g.folder || name == "" {
		return name
	}
	return folder[strings.LastIndexByte(folder, '/')+1:] + "." + name
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	durationType  = reflect.TypeFor[time.Duration]()
	timestampType = reflect.TypeFor[*timestamppb.Timestamp]()
	lengthType    = reflect.TypeFor[*durationpb.Duration]()
	doubleType    = reflect.TypeFor[*wrapperspb.DoubleValue]()
	textType      = reflect.TypeFor[string]()
)

func basic(t reflect.Type) bool { return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64 }

// built is the expression of a message's field from x.
func (g *generator) built(f *field, x string) (string, error) {
	d, m := f.domain, f.message.Type
	wire := func(name string) string { return g.call("api/wire", name) }
	switch p := g.of(d, m); {
	case p != nil && p.build != "":
		return g.call(p.folder, p.build) + "(" + x + ")", nil
	case d == timeType && m == timestampType:
		return wire("Time") + "(" + x + ")", nil
	case d == durationType && m == lengthType:
		return "durationpb.New(" + x + ")", nil
	case d == timeType && strings.HasSuffix(f.wire, "_ns"):
		return x + ".UnixNano()", nil
	case strings.Contains(f.marks, "?"):
		return "orZero(" + x + ")", nil
	case d.Kind() == reflect.Float64 && m == doubleType:
		return "known(" + x + ")", nil
	case d.Kind() == reflect.String && m == textType && d != textType:
		return wire("Text") + "(string(" + x + "))", nil
	case d == textType && m == textType && !strings.Contains(f.marks, "~"):
		return wire("Text") + "(" + x + ")", nil
	case d == m && d.Kind() == reflect.Slice && d.Elem() == textType && !strings.Contains(f.marks, "~"):
		return "lists.Map(" + x + ", " + wire("Text") + ")", nil
	case d == m:
		return x, nil
	case g.folder == "api/wire" && d.Kind() == reflect.Int && m.Kind() == reflect.Int32:
		return "toInt32(" + x + ")", nil
	case g.folder == "api/wire" && d.Kind() == reflect.Int && m.Kind() == reflect.Uint32:
		return "toUint32(" + x + ")", nil
	case basic(d) && basic(m):
		return g.name(m) + "(" + x + ")", nil
	case d.Kind() == reflect.Slice && m.Kind() == reflect.Slice:
		if p := g.of(d.Elem(), m.Elem()); p != nil && p.build != "" {
			return "lists.Map(" + x + ", " + g.call(p.folder, p.build) + ")", nil
		}
		if basic(d.Elem()) && basic(m.Elem()) {
			return fmt.Sprintf("lists.Map(%s, func(v %s) %s { return %s(v) })", x, g.name(d.Elem()), g.name(m.Elem()), g.name(m.Elem())), nil
		}
	}
	return "", f.noWay(d, m)
}

// read is the expression of a domain field from x, a message's.
func (g *generator) read(f *field, x string) (string, error) {
	d, m := f.domain, f.message.Type
	wire := func(name string) string { return g.call("api/wire", name) }
	switch p := g.of(d, m); {
	case p != nil && p.parse != "":
		return wire("Field") + "(f, " + g.call(p.folder, p.parse) + ", " + x + ")", nil
	case d == timeType && m == timestampType:
		return fmt.Sprintf("f.Time(%q, %s)", f.wire, x), nil
	case d == durationType && m == lengthType:
		return fmt.Sprintf("f.Duration(%q, %s)", f.wire, x), nil
	case d == timeType && strings.HasSuffix(f.wire, "_ns"):
		return "time.Unix(0, " + x + ")", nil
	case strings.Contains(f.marks, "^") && m == textType:
		return wire("Text") + "(" + x + ")", nil
	case strings.Contains(f.marks, "^"):
		return "lists.Map(" + x + ", " + wire("Text") + ")", nil
	case d == m:
		return x, nil
	case basic(d) && basic(m):
		return g.name(d) + "(" + x + ")", nil
	case d.Kind() == reflect.Slice && m.Kind() == reflect.Slice && basic(d.Elem()) && basic(m.Elem()):
		return fmt.Sprintf("lists.Map(%s, func(v %s) %s { return %s(v) })", x, g.name(m.Elem()), g.name(d.Elem()),
			g.name(d.Elem())), nil
	case d.Kind() == reflect.Slice && m.Kind() == reflect.Slice:
		if p := g.of(d.Elem(), m.Elem()); p != nil && p.parse != "" {
			return wire("Each") + "(f, " + g.call(p.folder, p.parse) + ", " + x + ")", nil
		} else if p != nil && p.read != "" { // one whose fields cannot be refused
			return "lists.Map(" + x + ", " + g.call(p.folder, p.read) + ")", nil
		}
	}
	return "", f.noWay(m, d)
}

// noWay is the error of a field whose types have no conversion; a field of a oneof has the partner's name in its type.
func (f *field) noWay(from, to reflect.Type) error {
	return fmt.Errorf("%s: no way from %v to %v: in pairs() give these types a pair of their own, or leave the field out "+
		"by the rules \"-%s -%s\" and convert it by hand", f.name, from, to, f.name, f.wire)
}

// name is a type as the generated file writes it.
func (g *generator) name(t reflect.Type) string {
	own := regexp.MustCompile(`\b` + g.folder[strings.LastIndexByte(g.folder, '/')+1:] + `\.`)
	return own.ReplaceAllString(strings.Replace(t.String(), "wattmarkv1.", "pb.", 1), "")
}

// emit writes the functions of a pair.
func (g *generator) emit(w *strings.Builder, p *pair) error {
	fields, err := g.fields(p)
	if err != nil {
		return err
	}
	domain, message := g.name(p.domain), g.name(p.message)
	if p.build != "" {
		fmt.Fprintf(w, "// %s converts a %s to its message.\nfunc %s(d %s) *%s {\n", p.build, strings.TrimPrefix(domain, "*"),
			p.build, domain, message)
		if p.domain.Kind() == reflect.Pointer {
			fmt.Fprint(w, "\tif d == nil {\n\t\treturn nil\n\t}\n")
		}
		fmt.Fprintf(w, "\treturn &%s{\n", message)
		for i := range fields {
			f := &fields[i]
			x, err := g.built(f, "d."+f.name)
			if err != nil {
				return fmt.Errorf("%v: %w", p.domain, err)
			}
			fmt.Fprintf(w, "\t\t%s: %s,\n", f.message.Name, x)
		}
		fmt.Fprint(w, "\t}\n}\n\n")
	}
	var body strings.Builder
	for i := range fields {
		if f := &fields[i]; !strings.Contains(f.marks, ">") && p.read+p.parse != "" && !(p.read == "" && p.parseByHand) {
			x, err := g.read(f, "p.Get"+f.message.Name+"()")
			if err != nil {
				return fmt.Errorf("%v: %w", p.domain, err)
			}
			fmt.Fprintf(&body, "\td.%s = %s\n", f.name, x)
		}
	}
	keeper := "f *" + g.call("api/wire", "Fields") + ", "
	if !regexp.MustCompile(`\bf[.,]`).MatchString(body.String()) {
		keeper = ""
	}
	switch {
	case p.read != "":
		fmt.Fprintf(w, "// %s reads a %s, unchecked, from its message, which may be nil.\nfunc %s(%sp *%s) (d %s) {\n%s\treturn d\n}\n\n",
			p.read, domain, p.read, keeper, message, domain, &body)
	case p.parse != "" && !p.parseByHand:
		fmt.Fprintf(w, "// %s reads a %s from its message, which may be nil.\nfunc %s(p *%s) (d %s, err error) {\n\tvar f %s\n%s\treturn d, f.Err\n}\n\n",
			p.parse, domain, p.parse, message, domain, g.call("api/wire", "Fields"), strings.ReplaceAll(body.String(), "(f,", "(&f,"))
	}
	return nil
}

const module = "github.com/wattmark/wattmark/"

// imports are the packages that generated code may name, by their names there.
var imports = []struct{ name, path string }{
	{"time", "time"},
	{"durationpb", "google.golang.org/protobuf/types/known/durationpb"},
	{"pb", module + "api/wattmarkv1"},
	{"wire", module + "api/wire"},
	{"lists", module + "internal/lists"},
	{"measure", module + "measure"},
	{"clock", module + "measure/clock"},
	{"marker", module + "measure/marker"},
	{"quality", module + "measure/quality"},
	{"serving", module + "measure/serving"},
	{"session", module + "measure/session"},
	{"store", module + "store"},
	{"api", module + "api"},
	{"sensor", module + "analysis/sensor"},
	{"validate", module + "analysis/validate"},
	{"gpu", module + "hostagent/gpu"},
}

// source returns the generated file of a folder.
func source(folder string, pairs []pair) ([]byte, error) {
	g := &generator{folder, pairs}
	var body strings.Builder
	for i := range pairs {
		if p := &pairs[i]; p.folder == folder && !p.byHand {
			if err := g.emit(&body, p); err != nil {
				return nil, err
			}
		}
	}
	var head strings.Builder
	fmt.Fprintf(&head, "// Code generated by go generate ./api/wire (api/internal/convert). DO NOT EDIT.\n\npackage %s\n\nimport (\n",
		folder[strings.LastIndexByte(folder, '/')+1:])
	for _, i := range imports {
		if regexp.MustCompile(`\b` + i.name + `\.`).MatchString(body.String()) {
			if i.path == i.name {
				fmt.Fprintf(&head, "\t%q\n\n", i.path)
			} else if strings.HasSuffix(i.path, "/"+i.name) {
				fmt.Fprintf(&head, "\t%q\n", i.path)
			} else {
				fmt.Fprintf(&head, "\t%s %q\n", i.name, i.path)
			}
		}
	}
	return format.Source([]byte(head.String() + ")\n\n" + body.String()))
}
