package main

import (
	"io"
	"net"
	"sync"
)

// proxy is a cable that can be cut: it passes connections on to an address.
type proxy struct {
	listener net.Listener
	to       string

	mu        sync.Mutex
	unplugged bool
	conns     map[net.Conn]bool
}

func newProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, to: to, conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.pass(c)
	}
}

func (p *proxy) pass(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer up.Close()
	if !p.keep(c, up) {
		return
	}
	defer p.drop(c, up)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unplugged {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// cut breaks all that is connected; with out, nothing connects any more until
// plug.
func (p *proxy) cut(out bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unplugged = out
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) plug() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unplugged = false
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.cut(true)
}
