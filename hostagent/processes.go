package hostagent

// ProcessUse is a process that has a context on a GPU.
type ProcessUse struct {
	PID  int
	Name string
	// Busy is the share of the time for which it had kernels there; NaN where that is not
	// told.
	Busy float64
}

// ProcessReader is a PowerSensor that also tells which processes use the GPU.
type ProcessReader interface {
	// Processes returns those that hold a context now, or had kernels within a span. Busy is
	// over the parts of the span that are told of.
	Processes(within Span) ([]ProcessUse, error)
}
