package discover

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestInstrumentsAreKnownByTheirIDs(t *testing.T) {
	files := fstest.MapFS{
		"dev/usbtmc0": {},
		"dev/usbtmc1": {},
		"dev/usbtmcX": {},
		"sys/class/usbmisc/usbtmc0/device/uevent": {Data: []byte("DEVTYPE=usb_interface\nDRIVER=usbtmc\nPRODUCT=1ab1/4ce/100\nTYPE=0/0/0\n")},
	}
	got, err := instruments(files)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v: want two", got, err)
	}
	if p := got[0]; p.Address != "usbtmc:/dev/usbtmc0" || p.USB != "1AB1:04CE" || !slices.Contains(p.Kinds, "rigol-ds1000z") {
		t.Errorf("%+v: want a Rigol", p)
	}
	if p := got[1]; p.USB != "" || p.Kinds != nil {
		t.Errorf("%+v: want nothing known", p)
	}
}

func TestVendorStandsInForUnknownProduct(t *testing.T) {
	for ids, want := range map[string]string{"0483:5740": "powersensor3", "1A86:7523": "pmd", "1A86:0001": "serialtext", "2341:8036": "serialtext"} {
		if k := kindsOf(ids); len(k) == 0 || k[0] != want {
			t.Errorf("%s: %v, want %s", ids, k, want)
		}
	}
	if k := kindsOf("FFFF:0001"); k != nil {
		t.Errorf("an unknown device is taken for %v", k)
	}
}

// STM32's virtual port is in a PowerSensor3, a PMD2 and others: none is named alone.
func TestSharedNumbersNameNoInstrument(t *testing.T) {
	for ids, want := range map[string][]string{"0483:5740": {"powersensor3", "pmd2"}, "04D8:000A": {"powenetics"}} {
		k := kindsOf(ids)
		for _, w := range want {
			if !slices.Contains(k, w) {
				t.Errorf("%s: %v lacks %s", ids, k, w)
			}
		}
		if len(k) < 2 {
			t.Errorf("%s: %v is named alone", ids, k)
		}
	}
}

func TestPortsThatMayBeMetersComeFirst(t *testing.T) {
	ports := []Port{{Address: "/dev/ttyS0"}, {Address: "/dev/ttyUSB7", USB: "FFFF:0001"}, {Address: "/dev/ttyACM0", USB: "0483:5740", Kinds: []string{"pmd2"}}}
	slices.SortFunc(ports, byPromise)
	if ports[0].Address != "/dev/ttyACM0" || ports[2].Address != "/dev/ttyS0" {
		t.Errorf("%+v", ports)
	}
}

func TestPortsOfThisMachine(t *testing.T) {
	if _, err := Ports(fstest.MapFS{}); err != nil {
		t.Error(err)
	}
}
