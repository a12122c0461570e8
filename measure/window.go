package measure

// Window is a span of device time.
type Window struct{ From, To Seconds }

// Identity is what an instrument said of itself.
type Identity struct {
	Kind, Model, Serial, Firmware, Address string
}
