package pyramid

import (
	"fmt"

	"wattmark/measure"
)

// Builder makes the pages of a capture from its scans, in their order. Its memory
// is a page a level. It is not safe for concurrent use.
type Builder struct {
	series int
	next   uint64 // first scan that may come
	scans  uint64 // in all pages
	open   [Levels]*Page
	out    func(*Page) error
}

// NewBuilder begins a pyramid at a capture's scan first. out gets every page that is
// complete, the lower levels first; it must not keep it.
func NewBuilder(series int, out func(*Page) error) *Builder {
	return &Builder{series: series, out: out}
}

// Next returns the first scan that may come.
func (b *Builder) Next() uint64 { return b.next }

// Scans returns how many scans the pages hold, those that Resume went on behind among them.
func (b *Builder) Scans() uint64 { return b.scans }

// Add takes n scans from a number on, all of one bin of level 0, and what each
// series did over them. Scans may be left out, and none may come again.
func (b *Builder) Add(first uint64, n int, e []measure.Extreme) error {
	if len(e) != b.series || first < b.next || n < 1 || first%Base+uint64(n) > Base {
		return fmt.Errorf("pyramid: %d scans of %d series from scan %d on: want some of one bin, of %d series, from %d on", n, len(e), first, b.series, b.next)
	}
	page := b.open[0]
	if number := first / PageScans(0); page == nil || page.Number != number {
		var err error
		if page, err = b.page(0, number); err != nil {
			return err
		}
	}
	at := first % PageScans(0) / Base
	for s := range e {
		page.Series[s][at].Join(Bin{e[s].Min, e[s].Max, e[s].Sum, uint64(n)})
	}
	b.next = first + uint64(n)
	b.scans += uint64(n)
	return nil
}

// page returns the open page of a level, after closing the one before it.
func (b *Builder) page(level int, number uint64) (*Page, error) {
	p := b.open[level]
	switch {
	case p == nil:
		b.open[level] = NewPage(level, number, b.series)
	case p.Number != number:
		if err := b.close(level); err != nil {
			return nil, err
		}
		p.clear()
		p.Number = number
	}
	return b.open[level], nil
}

// close hands a page on, and its bins to the next level.
func (b *Builder) close(level int) error {
	p := b.open[level]
	if err := b.raise(p); err != nil {
		return err
	}
	return b.out(p)
}

// raise adds a page's bins to the page of the next level that they lie in.
func (b *Builder) raise(p *Page) error {
	if p.Level+1 == Levels {
		return nil
	}
	const width = PageBins / Ratio // bins of the next level that a page fills
	up, err := b.page(p.Level+1, p.Number/Ratio)
	if err != nil {
		return err
	}
	at := int(p.Number%Ratio) * width
	for s, bins := range p.Series {
		for i, bin := range bins {
			up.Series[s][at+i/Ratio].Join(bin)
		}
	}
	if p.Number%Ratio < Ratio-1 {
		return nil
	}
	// It is complete with its last part: whoever begins again behind that finds it.
	b.open[up.Level] = nil
	if err := b.raise(up); err != nil {
		return err
	}
	return b.out(up)
}

// Resume goes on behind pages that are complete already: page yields the page of a
// level and number, nil where there is none. The scans from Next on must be added
// again.
func (b *Builder) Resume(last uint64, page func(level int, number uint64) (*Page, error)) error {
	b.next = (last + 1) * PageScans(0)
	b.scans = 0
	for level := range Levels {
		// Pages of this level that lie in an unfinished page of the next.
		done := b.next / PageScans(level)
		from := done - done%Ratio
		if level == Levels-1 {
			from = 0 // there is no next
		}
		for n := from; n < done; n++ {
			p, err := page(level, n)
			if err != nil {
				return err
			}
			if p == nil {
				continue
			}
			for i := range p.Series[0] {
				b.scans += p.Series[0][i].N
			}
			if err := b.raise(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close hands on the pages that are not full. The builder is done.
func (b *Builder) Close() error {
	for level := range b.open { // closing one opens the next
		if p := b.open[level]; p == nil || !p.hasData() {
			continue
		}
		if err := b.close(level); err != nil {
			return err
		}
	}
	return nil
}
