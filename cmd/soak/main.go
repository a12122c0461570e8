// Command soak runs monitor and host for as long as asked, on a meter and a card
// in software: captures back to back at 100 kS/s of six channels, with faults in
// every second one. It notes memory, descriptors, goroutines and disk, holds every
// energy against what the card really drew, and says whether all stayed as it
// should.
//
//	go run ./cmd/soak --for 10m --out soak
//
// What it writes: soak/samples.csv, captures.csv and soak.svg. It exits with 1
// when something was not as it should be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are what the command line says.
type options struct {
	program, bench, out string
	length              time.Duration // of the whole
	capture, long       time.Duration // of one piece of work, and of some
	sample              time.Duration // how often processes are looked at
	settle              time.Duration // until when memory may grow
	faults              bool
}

func main() {
	var o options
	flag.StringVar(&o.program, "wattmark", "bin/wattmark", "the program to try")
	flag.StringVar(&o.bench, "bench", "docs/benches/ni-usb6259.yaml", "bench file of an NI device, whose address is replaced")
	flag.StringVar(&o.out, "out", "soak", "folder for what was noted; it is made")
	flag.DurationVar(&o.length, "for", 10*time.Minute, "how long")
	flag.DurationVar(&o.capture, "capture", 10*time.Second, "length of the work of one capture")
	flag.DurationVar(&o.long, "long", 0, "length of the work of every eighth capture, where it is more")
	flag.DurationVar(&o.sample, "sample", 2*time.Second, "how often to look at memory, descriptors and disk")
	flag.DurationVar(&o.settle, "settle", 2*time.Minute, "from when on memory and descriptors must stay")
	flag.BoolVar(&o.faults, "faults", true, "cut lines, unplug the meter, kill programs in every second capture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good, err := soak(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !good {
		stop()
		os.Exit(1) //nolint:gocritic // nothing else is deferred
	}
}

// soak runs it all and reports.
func soak(ctx context.Context, o options) (good bool, err error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return false, err
	}
	l, err := newLab(o)
	if err != nil {
		return false, err
	}
	defer l.close()
	if err := l.start(ctx); err != nil {
		return false, err
	}
	watch := l.watch(ctx)
	if err := l.capturesUntil(ctx, l.begun.Add(o.length)); err != nil {
		return false, fmt.Errorf("%w; the programs' logs are in %s", err, l.dir)
	}
	l.finish(ctx)
	samples := watch()
	if err := writeAll(o.out, samples, l.captures); err != nil {
		return false, err
	}
	v := judge(samples, l.captures, o.settle)
	v.Leftover = l.leftover
	l.keep = !v.good()
	fmt.Print(v.text(o))
	return v.good(), os.WriteFile(o.out+"/verdict.txt", []byte(v.text(o)), 0o644)
}
