package scpiface

// errorQuery is the header of the error queue in SCPI.
const errorQuery = "SYSTem:ERRor[:NEXT]"

// MoveErrorQuery gives the error queue another header, for instruments that
// speak IEEE 488.2 but not SCPI. It is called before clients are served.
func (i *Instrument) MoveErrorQuery(pattern string) {
	for n, c := range i.commands {
		if c.Pattern == errorQuery {
			i.commands[n].nodes = compile(pattern)
		}
	}
}
