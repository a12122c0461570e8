package transport

import (
	"errors"
	"testing"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]Address{
		"serial:/dev/ttyACM0?baud=921600": {"serial", "/dev/ttyACM0", 921600},
		"serial:/dev/ttyACM0":             {"serial", "/dev/ttyACM0", 0},
		"/dev/pts/3":                      {"serial", "/dev/pts/3", 0},
		"/dev/ttyUSB0?baud=115200":        {"serial", "/dev/ttyUSB0", 115200},
		"COM7":                            {"serial", "COM7", 0},
		"serial:COM7?baud=9600":           {"serial", "COM7", 9600},
		"tcp:192.168.0.7:5025":            {"tcp", "192.168.0.7:5025", 0},
		"tcp:[::1]:5025":                  {"tcp", "[::1]:5025", 0},
	} {
		if got, err := ParseAddress(in); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "ttyUSB0", "usb:1", "serial:", "serial:?baud=9600", "serial:/dev/x?baud=0", "serial:/dev/x?baud=a",
		"serial:/dev/x?baud=1200&baud=2400", "serial:/dev/x?parity=odd", "tcp:host", "tcp::80", "tcp:host:0",
		"tcp:host:99999", "/dev/x\n", "serial:/dev/x?baud=99999999",
	} {
		if got, err := ParseAddress(in); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %+v, %v; want ErrAddress", in, got, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"", "serial:/dev/ttyACM0?baud=921600", "tcp:[::1]:80", "COM3", "/dev/x", "tcp:a:b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		b, err := ParseAddress(a.String())
		if err != nil || a != b {
			t.Errorf("%q → %+v → %q → %+v, %v", s, a, a.String(), b, err)
		}
	})
}
