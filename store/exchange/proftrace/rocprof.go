package proftrace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
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
		err = c.rocprofSpans(r.Calls, "cuda_runtime", func(row *row) bool { return launched[row.number("Correlation_Id")] })
		if err != nil {
			return fmt.Errorf("%w: the table of calls: %w", ErrTrace, err)
		}
	}
	if r.Ranges != nil {
		err = c.rocprofSpans(r.Ranges, "user_annotation", func(row *row) bool { return row.from < row.to }) // else a mark
		if err != nil {
			return fmt.Errorf("%w: the table of ranges: %w", ErrTrace, err)
		}
	}
	c.out.WriteString("\n]}\n")
	return c.out.Flush()
}

// rocprofKernels writes the kernels and notes their correlations.
func (c *converter) rocprofKernels(r io.Reader, launched map[uint32]bool) error {
	return rows(r, "Kernel_Name", func(row *row) {
		var grid, block [3]uint32
		for i, axis := range []string{"_X", "_Y", "_Z"} {
			block[i] = max(row.number("Workgroup_Size"+axis), 1)
			grid[i] = uint32((uint64(row.number("Grid_Size"+axis)) + uint64(block[i]) - 1) / uint64(block[i]))
		}
		device, queue, correlation := row.number("Agent_Id"), row.number("Queue_Id"), row.number("Correlation_Id")
		launched[correlation] = true
		if row.err != nil {
			return
		}
		c.event(`{"ph":"X","cat":"kernel","name":%s,"pid":"GPU %d","tid":"queue %d","ts":%s,"dur":%s,`+
			`"args":{"device":%d,"stream":%d,"correlation":%d,"grid":[%d,%d,%d],"block":[%d,%d,%d]}}`,
			quoted(row.name), device, queue, micros(row.from), micros(row.to-row.from), device, queue, correlation,
			grid[0], grid[1], grid[2], block[0], block[1], block[2])
	})
}

// rocprofSpans writes what threads did: the rows that are wanted.
func (c *converter) rocprofSpans(r io.Reader, category string, want func(*row) bool) error {
	return rows(r, "Function", func(row *row) {
		pid, tid, correlation := row.number("Process_Id"), row.number("Thread_Id"), row.number("Correlation_Id")
		if !want(row) || row.err != nil {
			return
		}
		c.event(`{"ph":"X","cat":"%s","name":%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"correlation":%d}}`,
			category, quoted(row.name), pid, tid, micros(row.from), micros(row.to-row.from), correlation)
	})
}

// row is a line of a table of rocprofv3. The first error of its numbers stays.
type row struct {
	columns  map[string]int // in lower case: rocpd2csv writes Lds_Block_Size, rocprofv3 LDS_Block_Size
	fields   []string
	name     string
	from, to int64
	err      error
}

// rows reads a table, whose column name names each row, and hands on its rows. The row is reused.
func rows(r io.Reader, name string, each func(*row)) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return fmt.Errorf("it has no head of columns: %w", err)
	}
	x := row{columns: map[string]int{}}
	for i, h := range head {
		x.columns[strings.ToLower(strings.TrimPrefix(h, "\ufeff"))] = i
	}
	for {
		x.fields, err = in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		x.name = x.text(name)
		x.from, x.to = x.time("Start_Timestamp"), x.time("End_Timestamp")
		if x.err == nil && x.to < x.from {
			x.err = fmt.Errorf("it ends %d ns before it starts", x.from-x.to)
		}
		if x.err == nil {
			each(&x)
		}
		if x.err != nil {
			line, _ := in.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, x.err)
		}
	}
}

// text returns a field.
func (r *row) text(column string) string {
	i, ok := r.columns[strings.ToLower(column)]
	if !ok && r.err == nil {
		r.err = fmt.Errorf("the column %s is missing: is it of rocprofv3 --output-format csv?", column)
	}
	if !ok {
		return ""
	}
	return r.fields[i]
}

// time returns a time of CLOCK_BOOTTIME in ns.
func (r *row) time(column string) int64 {
	ns, err := strconv.ParseInt(r.text(column), 10, 64)
	if (err != nil || ns <= 0) && r.err == nil {
		r.err = fmt.Errorf("%s %q is no time in ns", column, measure.Shorten(r.text(column), 40))
	}
	return ns
}

// number returns a whole number, also one that stands behind a word: "Agent 7", "GPU 3".
func (r *row) number(column string) uint32 {
	text := r.text(column)
	n, err := strconv.ParseUint(text[strings.LastIndexByte(text, ' ')+1:], 10, 32)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s %q is no whole number below 2^32", column, measure.Shorten(text, 40))
	}
	return uint32(n)
}
