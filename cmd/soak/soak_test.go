package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// steady is ten minutes in which nothing happens but captures that are right.
func steady() (samples []sample, captures []capture) {
	for at := time.Duration(0); at < 10*time.Minute; at += 2 * time.Second {
		u := usage{PID: 7, RSS: 100e6, Own: 60e6, Descriptors: 12, Goroutines: 20}
		samples = append(samples, sample{At: at, Monitor: u, Host: u, Meter: u, Spool: 1e6, WAL: 4e6, Database: 3e8})
	}
	for at := time.Duration(0); at < 10*time.Minute; at += 12 * time.Second {
		captures = append(captures, capture{At: at, Fault: none, Task: 1, State: "complete", Stored: 1e6, EnergyJ: 100.5, UJ: 1, TruthJ: 100})
	}
	return samples, captures
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		good   bool
		change func([]sample, []capture)
	}{
		"steady":                  {true, func([]sample, []capture) {}},
		"grows before it settles": {true, func(s []sample, _ []capture) { s[3].Monitor.RSS = 10e6 }},
		"one descriptor more":     {true, func(s []sample, _ []capture) { last(s, func(x *sample) { x.Monitor.Descriptors++ }) }},
		"memory grows":            {false, func(s []sample, _ []capture) { last(s, func(x *sample) { x.Monitor.RSS += 6e6 }) }},
		"pages are taken back":    {true, func(s []sample, _ []capture) { last(s, func(x *sample) { x.Monitor.RSS -= 20e6 }) }},
		"memory shrinks": {false, func(s []sample, _ []capture) {
			last(s, func(x *sample) { x.Monitor.RSS -= 20e6; x.Monitor.Own -= 20e6 })
		}},
		"descriptors leak": {false, func(s []sample, _ []capture) { last(s, func(x *sample) { x.Host.Descriptors += 2 }) }},
		"goroutines leak":  {false, func(s []sample, _ []capture) { last(s, func(x *sample) { x.Monitor.Goroutines += 3 }) }},
		"a scan is lost":   {false, func(_ []sample, c []capture) { c[4].Lost = 1 }},
		"a scan is lost while unplugged": {true, func(_ []sample, c []capture) {
			c[4].Lost, c[4].Fault, c[4].State, c[4].EnergyJ = 1, unplug, "incomplete", 90
		}},
		"an energy is wrong":  {false, func(_ []sample, c []capture) { c[4].EnergyJ = 101.5 }},
		"no energy":           {false, func(_ []sample, c []capture) { c[4].EnergyJ = 0 }},
		"a task breaks off":   {false, func(_ []sample, c []capture) { c[4].State = "incomplete" }},
		"no result":           {false, func(_ []sample, c []capture) { c[4].Failure = "x" }},
		"a program is killed": {true, func(_ []sample, c []capture) { c[4] = capture{Fault: killRun, State: "killed"} }},
	} {
		samples, captures := steady()
		c.change(samples, captures)
		v := judge(samples, captures, 2*time.Minute)
		text := v.text(options{settle: 2 * time.Minute})
		if v.good() != c.good || c.good == strings.Contains(text, "FAIL") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	samples, captures := steady()
	v := judge(samples, captures, 2*time.Minute)
	if v.Leftover = 1; v.good() {
		t.Error("a task that is left is good")
	}
	if v := judge(samples, nil, 0); v.good() {
		t.Error("no capture at all is good")
	}
}

// last changes the last minute.
func last(s []sample, change func(*sample)) {
	for i := len(s) - 30; i < len(s); i++ {
		change(&s[i])
	}
}

func TestWriteAll(t *testing.T) {
	dir := t.TempDir()
	samples, captures := steady()
	if err := writeAll(dir, samples, captures); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"samples.csv": "monitor_rss_bytes", "captures.csv": "truth_j", "soak.svg": "memory, MB"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// A line passes bytes both ways until it is cut, and again once it is plugged in.
func TestProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	p, err := newProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	echo := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write([]byte("x")) // its answer tells
		b := make([]byte, 1)
		_, err = io.ReadFull(c, b)
		return c, err == nil
	}
	c, ok := echo()
	if !ok {
		t.Fatal("nothing comes through")
	}
	p.cut(true)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("it was not cut")
	}
	if _, ok := echo(); ok {
		t.Error("it passes while unplugged")
	}
	p.plug()
	if _, ok := echo(); !ok {
		t.Error("nothing comes through again")
	}
}
