package pyramid

import (
	"fmt"

	"wattmark/measure"
)

// Columns are a stretch of scans, shared out among as many columns of every series: of
// n columns, c covers scans First + Scans·c/n to First + Scans·(c+1)/n. Scans and bins
// join the column that their first scan lies in; what begins before First, and reaches
// it, the first one.
type Columns struct {
	First, Scans uint64
	Bins         [][]Bin // by series
}

// NewColumns returns columns without scans.
func NewColumns(series, columns int, first, scans uint64) *Columns {
	c := &Columns{First: first, Scans: scans, Bins: make([][]Bin, series)}
	for s := range c.Bins {
		c.Bins[s] = make([]Bin, columns)
		for i := range c.Bins[s] {
			c.Bins[s][i] = empty()
		}
	}
	return c
}

// at is the column of a scan before the end, and the first scan that is of the next one.
func (c *Columns) at(scan uint64) (column, next uint64) {
	n := uint64(len(c.Bins[0]))
	if scan > c.First {
		column = (scan - c.First) * n / c.Scans
	}
	return column, c.First + ((column+1)*c.Scans+n-1)/n
}

// Join adds n scans from one on, all of one column, and what each series did over them.
func (c *Columns) Join(scan uint64, n int, e []measure.Extreme) {
	column, _ := c.at(scan)
	for s := range c.Bins {
		c.Bins[s][column].Join(Bin{e[s].Min, e[s].Max, e[s].Sum, uint64(n)})
	}
}

// Room is how many scans from one of the stretch on are of its column.
func (c *Columns) Room(scan uint64) int {
	_, next := c.at(scan)
	return int(next - scan)
}

// JoinStored adds the bins of a stored page of a level. Errors wrap ErrPage.
func (c *Columns) JoinStored(level int, number uint64, b []byte) error {
	p, err := parse(b)
	if err != nil {
		return err
	}
	if p.series != len(c.Bins) {
		return fmt.Errorf("%w: %d series of %d", ErrPage, p.series, len(c.Bins))
	}
	size, begin, end := BinScans(level), number*PageScans(level), c.First+c.Scans
	from := uint64(0)
	if begin < c.First {
		from = (c.First - begin) / size // the bin that holds the first scan
	}
	to := min(PageBins, (max(begin, end)-begin+size-1)/size)
	for from < to {
		column, next := c.at(begin + from*size)
		upTo := min(to, (next-begin+size-1)/size)
		for s := range c.Bins {
			c.Bins[s][column].Join(p.join(s, int(from), int(upTo), size))
		}
		from = upTo
	}
	return nil
}
