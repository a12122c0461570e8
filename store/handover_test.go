package store

import (
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
)

// What is gathered is what the columns hold, row by row; a blob is refused.
func TestGather(t *testing.T) {
	d := open(t)
	var whole TaskID
	var other, key cell
	var name string
	var number float64
	var yes bool
	columns := []column{intTo(&whole), flag{&yes}, realTo(&number), textTo(&name), &other, &key}
	type row struct {
		whole  TaskID
		yes    bool
		number float64
		name   string
		other  cell
	}
	var got []row
	keep := func() error {
		got = append(got, row{whole, yes, number, name, other})
		return nil
	}
	const values = `(SELECT -9223372036854775807-1 AS a, 1 AS b, 0.1 AS c, 'x' || char(9) || 'я' AS d, 'text' AS e UNION ALL SELECT NULL, 0, NULL, NULL, NULL
		UNION ALL SELECT 7, NULL, 3, '', 1e300 UNION ALL SELECT 300, 1, -2.5, '', -1) v`
	ok(t, d.gather(t.Context(), PlanEach, columns, keep, "v.a, v.b, v.c, v.d, v.e, NULL", values))
	want := []row{
		{math.MinInt64, true, 0.1, "x я", cell{kind: cellText, text: "text"}},
		{0, false, 0, "", cell{}},
		{7, false, 3, "", cell{kind: cellReal, bits: math.Float64bits(1e300)}},
		{300, true, -2.5, "", cell{kind: cellInt, bits: math.MaxUint64}},
	}
	if len(got) == 4 && math.IsNaN(got[1].number) {
		got[1].number = 0
	}
	if !slices.EqualFunc(got, want, func(a, b row) bool {
		return a.whole == b.whole && a.yes == b.yes && a.number == b.number && a.name == b.name && a.other.kind == b.other.kind && a.other.bits == b.other.bits && a.other.text == b.other.text
	}) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	got = nil
	if ok(t, d.gather(t.Context(), PlanEach, columns, keep, "v.a, v.b, v.c, v.d, v.e, NULL", values+" WHERE v.a=8")); len(got) > 0 {
		t.Errorf("of no row: %v", got)
	}
	if err := d.gather(t.Context(), PlanEach, columns, keep, "1, 1, 1, '', x'00', NULL", "(SELECT 1) v"); err == nil {
		t.Error("a blob was gathered")
	}
	for _, wrong := range []string{"'a', 1, 1, '', 1, 1", "1, 'a', 1, '', 1, 1", "1, 1, 'a', '', 1, 1", "1, 1, 1, 1, 1, 1", "1, 1, 1, '', 1"} {
		if err := d.gather(t.Context(), PlanEach, columns, keep, wrong, "(SELECT 1) v"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestTagsOfAnObject(t *testing.T) {
	for object, want := range map[string]map[string]string{
		`{}`:                        {},
		`{"a":"b"}`:                 {"a": "b"},
		`{ "a" : "b", "c" : "" }`:   {"a": "b", "c": ""},
		`{"a":"say \"b\"","c":"d"}`: {"a": `say "b"`, "c": "d"},
		`{"a":"1\n2"}`:              {"a": "1 2"},
		`{"я":"\\"}`:                {"я": `\`},
	} {
		if got := must(tagsOf(object))(t); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", object, got, want)
		}
	}
	if _, err := tagsOf(`{"a":"b`); err == nil {
		t.Error("half an object was read")
	}
}

// Whatever bytes are taken for gathered rows, reading them ends, with all or an error.
func FuzzGathered(f *testing.F) {
	f.Add([]byte{cellInt, 2, cellReal, 1, 2, 3, 4, 5, 6, 7, 8, cellText, 1, 'x', cellNone})
	f.Add([]byte{cellText, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			_, rest, err := nextCell(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("nothing was read")
			}
			b = rest
		}
	})
}
