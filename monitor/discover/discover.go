// Package discover lists the ports of this machine at which an instrument may be: serial
// ports and USB test instruments, with the drivers that fit their USB ids and the obstacles
// to opening them. It opens none of them.
package discover

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/monitor/transport"
	"go.bug.st/serial/enumerator"
)

// Port is one place where an instrument may be.
type Port struct {
	// Address in the form of a bench file.
	Address string `json:"address"`
	// USB is the vendor and product, as 0483:5740; empty where it is none.
	USB string `json:"usb,omitempty"`
	// Product and Serial are the device's own texts.
	Product string `json:"product,omitempty"`
	Serial  string `json:"serial,omitempty"`
	// Kinds are drivers that fit the USB ids. Common chips are in many devices: of
	// several it is one, or none, until the device was asked.
	Kinds []string `json:"kinds,omitempty"`
	// Trouble is the obstacle to opening it now, with a remedy; empty for none.
	Trouble string `json:"trouble,omitempty"`
}

// known are drivers by USB vendor and product, or by vendor alone: makers of
// instruments give every family numbers of its own, and an instrument says by
// itself which it is.
var known = map[string][]string{
	"0483:5740": {"powersensor3", "pmd2", "wireview-pro2", "serialtext"}, // STM32's virtual port
	"04D8:000A": {"powenetics", "serialtext"},                            // Microchip's virtual port
	"1A86:7523": {"pmd", "serialtext"},                                   // CH340
	"1A86":      {"serialtext"},
	"2341":      {"serialtext"}, // Arduino
	"10C4":      {"serialtext"}, // CP210x
	"0403":      {"serialtext"}, // FTDI
	"2E8A":      {"serialtext"}, // Raspberry Pi Pico
	"0683":      {"dataq"},
	"1AB1":      {"rigol-ds1000z", "rigol-mso5000", "rigol-dho"},
	"F4EC":      {"siglent-e11"},
	"0957":      {"keysight-infiniivision", "keysight-u2300"}, // Agilent
	"2A8D":      {"keysight-infiniivision", "keysight-u2300"},
	"0699":      {"tektronix"},
	"0AAD":      {"rohde-schwarz-rtb2000"},
	"0B21":      {"yokogawa-wt300"},
}

// kindsOf returns the drivers for a device's ids, vendor:product in capitals.
func kindsOf(ids string) []string {
	if k, ok := known[ids]; ok {
		return k
	}
	vendor, _, _ := strings.Cut(ids, ":")
	return known[vendor]
}

// Ports lists all ports, those that may be a meter first, and by address.
func Ports(files fs.FS) ([]Port, error) {
	serials, err := enumerator.GetDetailedPortsList()
	if err != nil {
		return nil, fmt.Errorf("list serial ports: %w", err)
	}
	var out []Port
	for _, s := range serials {
		p := Port{Address: s.Name, Product: s.Product, Serial: s.SerialNumber}
		if s.IsUSB {
			p.USB = strings.ToUpper(s.VID + ":" + s.PID)
			p.Kinds = kindsOf(p.USB)
		}
		p.Trouble = trouble(s.Name)
		out = append(out, p)
	}
	more, err := instruments(files)
	out = append(out, more...)
	slices.SortFunc(out, byPromise)
	return out, err
}

// byPromise sorts ports that may be a meter first, and those that are no USB device, such as
// a mainboard's, last.
func byPromise(a, b Port) int {
	rank := func(p Port) int {
		switch {
		case len(p.Kinds) > 0:
			return 0
		case p.USB != "" || strings.HasPrefix(p.Address, "usbtmc:"):
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Address, b.Address))
}

// instruments lists the USB test instruments of Linux; files is the root of the file system.
func instruments(files fs.FS) ([]Port, error) {
	names, err := fs.Glob(files, "dev/usbtmc[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list USB test instruments: %w", err)
	}
	var out []Port
	for _, n := range names {
		node := "/" + n
		p := Port{Address: "usbtmc:" + node, Trouble: trouble(node)}
		if ids, ok := product(files, path.Join("sys/class/usbmisc", path.Base(n), "device/uevent")); ok {
			p.USB, p.Kinds = ids, kindsOf(ids)
		}
		out = append(out, p)
	}
	return out, nil
}

// product returns vendor and product from a USB interface's uevent, which has them as
// PRODUCT=1ab1/4ce/100.
func product(files fs.FS, name string) (ids string, ok bool) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		var vendor, product, version uint16
		if n, _ := fmt.Sscanf(line, "PRODUCT=%x/%x/%x", &vendor, &product, &version); n == 3 {
			return fmt.Sprintf("%04X:%04X", vendor, product), true
		}
	}
	return "", false
}

// trouble returns the obstacle to opening a device node, empty for none.
func trouble(node string) string {
	if !transport.Accessible(node) {
		return "permission denied: " + transport.AccessHint(node)
	}
	if who, held := transport.Holder(node); held {
		return who + " has it"
	}
	return ""
}
