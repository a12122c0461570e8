package measure

// Window is a span of device time.
type Window struct{ From, To Seconds }
