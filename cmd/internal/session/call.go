package session

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
)

// On a connection to a board a call is two gob values, the method's name and its arguments; an
// answer is the error's text, empty for none, and then the result. A train of markers is thousands
// of steps that must arrive before their time: gob carries them several times faster than JSON.

// plantMethods are the calls that serve accepts, by name.
var plantMethods = map[string]func(*plantService, *gob.Decoder) (call func() (any, error), err error){
	"Hello":     method((*plantService).Hello),
	"Processes": method((*plantService).Processes),
	"SetLoad":   method((*plantService).SetLoad),
	"SetSteps":  method((*plantService).SetSteps),
	"Cancel":    method((*plantService).Cancel),
	"MeanPower": method((*plantService).MeanPower),
	"Connect":   method((*plantService).Connect),
	"Energy":    method((*plantService).Energy),
}

// method returns a function that reads the arguments of a method and returns its call.
func method[A, R any](f func(*plantService, A) (R, error)) func(*plantService, *gob.Decoder) (func() (any, error), error) {
	return func(s *plantService, in *gob.Decoder) (func() (any, error), error) {
		var a A
		if err := in.Decode(&a); err != nil {
			return nil, err
		}
		return func() (any, error) { return f(s, a) }, nil
	}
}

// serve answers the calls of a connection one after the other until the caller closes it.
func (s *plantService) serve(c net.Conn) {
	defer c.Close()
	in, out := gob.NewDecoder(c), gob.NewEncoder(c)
	for {
		var name string
		if in.Decode(&name) != nil {
			return
		}
		call, err := func() (any, error) {
			return nil, fmt.Errorf("the emulator has no call %q: is it of another version?", name)
		}, error(nil)
		if read, ok := plantMethods[name]; ok {
			call, err = read(s, in)
		} else {
			err = in.DecodeValue(reflect.Value{}) // drops the arguments
		}
		if err != nil {
			return
		}
		result, err := call()
		if err != nil {
			err = out.Encode(err.Error())
		} else {
			err = errors.Join(out.Encode(""), out.Encode(result))
		}
		if err != nil {
			return
		}
	}
}

// PlantClient calls the board of another process. It is safe for concurrent use; calls wait
// for each other.
type PlantClient struct {
	mu   sync.Mutex
	conn net.Conn
	in   *gob.Decoder
	out  *gob.Encoder
}

// DialPlant connects to the emulator that serves a socket.
func DialPlant(socket string) (*PlantClient, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("simulated GPU: %w: is wattmark emulate --gpu %s running?", err, socket)
	}
	return &PlantClient{conn: c, in: gob.NewDecoder(c), out: gob.NewEncoder(c)}, nil
}

// Call blocks until the board has answered, and stores the result in reply, a pointer, or drops
// it where that is nil.
func (p *PlantClient) Call(method string, args, reply any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.out.Encode(method), p.out.Encode(args)); err != nil {
		return err
	}
	var fault string
	if err := p.in.Decode(&fault); err != nil {
		return err
	}
	if fault != "" {
		return errors.New(fault)
	}
	return p.in.Decode(reply)
}

// Close closes the connection, which ends the caller's context on the card.
func (p *PlantClient) Close() error { return p.conn.Close() }
