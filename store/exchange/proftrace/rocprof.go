package proftrace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/logfile"
)

// Rocprof are the tables that one process has from rocprofv3 (--output-format csv): kernel_trace.csv,
// hip_api_trace.csv and marker_api_trace.csv. Without Calls it is unknown when a kernel was launched, so that no range
// has any. Calls and Ranges may be nil.
type Rocprof struct{ Kernels, Calls, Ranges io.Reader }

// ConvertRocprof writes rocprofv3's tables as a trace: kernels, the calls that launched them, and the ranges of ROCTX.
// Times stay those of CLOCK_BOOTTIME, and the trace names no clock. Grids become work-groups, as in CUDA; rocprofv3
// counts work-items. Errors wrap ErrTrace and name the line.
func ConvertRocprof(w io.Writer, r Rocprof) error {
	c := &converter{out: bufio.NewWriterSize(w, 1<<16)}
	c.out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	launched := map[uint32]bool{}
	err := c.rocprofKernels(r.Kernels, launched)
	if err == nil && len(launched) == 0 {
		err = errors.New("it has no kernels")
	}
	if err != nil {
		return fmt.Errorf("%w: the table of kernels: %w", ErrTrace, err)
	}
	if r.Calls != nil {
		err = c.rocprofSpans(r.Calls, "cuda_runtime", func(r *row) bool { return launched[r.number("Correlation_Id")] })
		if err != nil {
			return fmt.Errorf("%w: the table of calls: %w", ErrTrace, err)
		}
	}
	if r.Ranges != nil {
		err = c.rocprofSpans(r.Ranges, "user_annotation", func(r *row) bool { return r.from < r.to }) // else a mark
		if err != nil {
			return fmt.Errorf("%w: the table of ranges: %w", ErrTrace, err)
		}
	}
	c.out.WriteString("\n]}\n")
	return c.out.Flush()
}

// rocprofKernels writes the kernels and notes their correlations.
func (c *converter) rocprofKernels(in io.Reader, launched map[uint32]bool) error {
	return rows(in, func(r *row) {
		k := attribute.Profiled{Name: r.text("Kernel_Name"), Start: r.from, End: r.to}
		for i, axis := range []string{"_X", "_Y", "_Z"} {
			block := uint64(max(r.number("Workgroup_Size"+axis), 1))
			k.Block[i] = uint32(block)
			k.Grid[i] = uint32((uint64(r.number("Grid_Size"+axis)) + block - 1) / block)
		}
		k.Device, k.Stream, k.Correlation = r.number("Agent_Id"), r.number("Queue_Id"), r.number("Correlation_Id")
		if launched[k.Correlation] = true; r.err == nil {
			c.kernel(&k, "queue")
		}
	})
}

// rocprofSpans writes what threads did: the rows that are wanted.
func (c *converter) rocprofSpans(in io.Reader, category string, want func(*row) bool) error {
	return rows(in, func(r *row) {
		name := quoted(r.text("Function"))
		pid, tid, correlation := r.number("Process_Id"), r.number("Thread_Id"), r.number("Correlation_Id")
		if !want(r) || r.err != nil {
			return
		}
		c.event(`{"ph":"X","cat":"%s","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"correlation":%d}}`,
			category, name, pid, tid, micros(r.from), micros(r.to-r.from), correlation)
	})
}

// row is a row of a table of rocprofv3. The first error of its fields stays.
type row struct {
	logfile.Row
	columns  map[string]logfile.Column // by name in lower case: rocpd2csv writes Lds_Block_Size, rocprofv3 LDS_Block_Size
	from, to int64
	err      error
}

// rows hands on the rows of a table. The row is reused.
func rows(in io.Reader, each func(*row)) error {
	t, err := logfile.Open(in, logfile.Options{Want: `"Kind","Agent_Id",… as rocprofv3 --output-format csv writes it`})
	if err != nil {
		return err
	}
	r := &row{columns: map[string]logfile.Column{}}
	for _, c := range t.Columns {
		r.columns[strings.ToLower(c.Text)] = c
	}
	for r.Row, err = range t.Rows() {
		if err != nil {
			return err
		}
		r.from, r.to = r.time("Start_Timestamp"), r.time("End_Timestamp")
		if r.err == nil && r.to < r.from {
			r.err = r.Fault(logfile.Column{}, "it ends %d ns before it starts", r.from-r.to)
		}
		if r.err == nil {
			each(r)
		}
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// text returns a field.
func (r *row) text(column string) string {
	c, ok := r.columns[strings.ToLower(column)]
	if !ok && r.err == nil {
		r.err = r.Fault(logfile.Column{}, "the column %s is missing: is it of rocprofv3 --output-format csv?", column)
	}
	if !ok {
		return ""
	}
	return r.Text(c)
}

// whole returns a whole number of at most so many bits, also one that stands behind a word: "Agent 7", "GPU 3".
func (r *row) whole(column string, bits int) uint64 {
	text := r.text(column)
	n, err := strconv.ParseUint(text[strings.LastIndexByte(text, ' ')+1:], 10, bits)
	if err != nil && r.err == nil {
		r.err = r.Fault(r.columns[strings.ToLower(column)], "%q is no whole number of %d bits", text, bits)
	}
	return n
}

func (r *row) number(column string) uint32 { return uint32(r.whole(column, 32)) }

// time returns a time of CLOCK_BOOTTIME in ns.
func (r *row) time(column string) int64 {
	ns := int64(r.whole(column, 63))
	if ns == 0 && r.err == nil {
		r.err = r.Fault(r.columns[strings.ToLower(column)], "it has no time")
	}
	return ns
}
