package counters

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// accelwattch reads the counters of AccelWattch's hardware model: Benchmark, Kernel
// and numbers for the whole kernel. Rows get the names of its table of powers:
// the k-th kernel of app is app_kK.
func (t *Table) accelwattch(lines []line) error {
	head := lines[0]
	if err := header(head); err != nil {
		return err
	}
	app, kernel := slices.Index(head.fields, "Benchmark"), slices.Index(head.fields, "Kernel")
	if app < 0 || kernel < 0 {
		return fmt.Errorf("line %d: %w: want the columns Benchmark and Kernel", head.no, ErrFormat)
	}
	var at []int
	for i, name := range head.fields {
		if i != app && i != kernel {
			at = append(at, i)
			t.Columns = append(t.Columns, Column{Name: name}) // it has no time in seconds
		}
	}
	for _, l := range lines[1:] {
		if err := l.width(len(head.fields)); err != nil {
			return err
		}
		r := blank(len(at))
		r.Line, r.App, r.Name = l.no, l.fields[app], l.fields[kernel]
		for k, i := range at {
			var err error
			if r.Values[k], err = l.value(i, head.fields[i]); err != nil {
				return err
			}
		}
		t.Runs = append(t.Runs, r)
	}
	for n, list := range t.byApp() {
		t.numberKernels(n, list)
	}
	return nil
}

// byApp returns the rows of each application, in their order.
func (t *Table) byApp() map[string][]int {
	out := map[string][]int{}
	for i, r := range t.Runs {
		out[r.App] = append(out[r.App], i)
	}
	return out
}

var (
	ownNumber = regexp.MustCompile(`^(.*)_k(\d+)$`)
	digits    = regexp.MustCompile(`\d+`)
)

// numberKernels names an application's kernels app_k1, app_k2 …: by the number in
// the application's own name where there is one; by the numbers in the kernels'
// names where these are 1, 2 … (fwtBatch1Kernel is the first wherever it stands);
// else as they stand.
func (t *Table) numberKernels(app string, rows []int) {
	if m := ownNumber.FindStringSubmatch(app); m != nil && len(rows) == 1 {
		t.Runs[rows[0]].App, t.Runs[rows[0]].Name = m[1], app
		return
	}
	order := slices.Clone(rows)
	said := map[int]int{}
	for _, i := range rows {
		name, _, _ := strings.Cut(demangle.Filter(t.Runs[i].Name, demangle.NoParams, demangle.NoTemplateParams), "(")
		if n := digits.FindAllString(name, -1); len(n) == 1 {
			if v, err := strconv.Atoi(n[0]); err == nil {
				said[i] = v
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(said[a], said[b]) })
	for k, i := range order {
		if said[i] != k+1 {
			order = rows
			break
		}
	}
	for k, i := range order {
		t.Runs[i].Name = fmt.Sprintf("%s_k%d", app, k+1)
	}
}
