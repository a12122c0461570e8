package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// csv is a text file of the same columns, synced at its end.
func (p *otherWays) csv(context.Context) error {
	path := filepath.Join(p.dir, "peer.csv")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	begin, w := time.Now(), bufio.NewWriterSize(f, 1<<20)
	var line []byte
	for i := range p.samples {
		line = append(line[:0], "1,matrix product,researcher"...)
		for _, v := range p.sample(i) {
			line = strconv.AppendFloat(append(line, ','), v, 'g', 7, 64)
		}
		line = strconv.AppendFloat(append(line, ','), float64(i)/longRateHz, 'f', -1, 64)
		line = append(strconv.AppendInt(append(line, ','), int64(i), 10), '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	r := p.add("CSV", begin)
	st, err := f.Stat()
	if err != nil {
		return err
	}
	r.BytesPerSample = float64(st.Size()) / float64(p.samples)
	return r.reading(func() (float64, error) { return meanOfCSV(path) })
}

func meanOfCSV(path string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := csv.NewReader(bufio.NewReaderSize(f, 1<<20))
	in.ReuseRecord = true
	sum, n := 0.0, 0
	for {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			return sum / float64(n), nil
		}
		if err != nil {
			return 0, err
		}
		w, err := strconv.ParseFloat(line[3], 64)
		if err != nil {
			return 0, err
		}
		sum += w
		n++
	}
}
