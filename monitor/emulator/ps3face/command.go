package ps3face

import "time"

const (
	hostTimeout = 2 * time.Second        // the host owes bytes; then the firmware resets
	stopDelay   = 100 * time.Millisecond // before the stop mark
)

// command carries out one command of the driver. Bytes that are no command are
// ignored, as the firmware does.
func (f *Face) command(b byte) error {
	switch b {
	case 'R':
		return f.readConfig()
	case 'W':
		return f.writeConfig()
	case 'S':
		f.catchUp()
		f.origin, f.streaming = f.frame, true
		f.began.Store(f.frame)
	case 'I':
		if f.streaming {
			return nil
		}
		f.catchUp()
		return f.send(1)
	case 'M':
		f.markers++
	case 'T':
		return f.stop()
	case 'X':
		if err := f.stop(); err != nil {
			return err
		}
		if !f.pace.Free() {
			if err := f.w.Sleep(stopDelay); err != nil {
				return err
			}
		}
		return f.w.Write([]byte{0xFF, 0x3F, 0xFF, 0x3F})
	case 'Q':
		f.catchUpIdle()
		return f.w.Write(f.counter())
	case 'V':
		return f.w.Write([]byte(f.cfg.Version + "\r\n"))
	case 'Z':
		f.reset()
	case 'Y':
		f.w.Detach() // it comes back as another USB device: this line is gone
	}
	return nil
}

// catchUpIdle keeps the counter running between streams without losing frames
// of one.
func (f *Face) catchUpIdle() {
	if !f.streaming {
		f.catchUp()
	}
}

// stop ends the stream once every pending marker is sent, as the firmware does.
func (f *Face) stop() error {
	if !f.streaming {
		return nil
	}
	for f.markers > 0 {
		if err := f.send(min(f.markers, maxFrames)); err != nil {
			return err
		}
	}
	f.streaming = false
	return nil
}

// readConfig sends the stored configuration, a sensor at a time; any byte of the
// driver asks for the next.
func (f *Face) readConfig() error {
	var ack [1]byte
	for _, s := range f.stored {
		b := s.Marshal()
		if err := f.w.Write(b[:]); err != nil {
			return err
		}
		if err := f.w.Recv(ack[:], hostTimeout); err != nil {
			return err
		}
	}
	return f.w.Write([]byte{'D'})
}

// writeConfig takes a configuration. It changes what R reads, never the
// hardware behind it.
func (f *Face) writeConfig() error {
	for i := range f.stored {
		var b [SensorBytes]byte
		if err := f.w.Recv(b[:], hostTimeout); err != nil {
			return err
		}
		f.memory.Lock()
		f.stored[i].Unmarshal(b)
		f.memory.Unlock()
		if err := f.w.Write([]byte{'S'}); err != nil {
			return err
		}
	}
	return f.w.Write([]byte{'D'})
}
