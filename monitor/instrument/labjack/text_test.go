package labjack

import "strconv"

func fmtFloat(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func fmtInt(n int) string { return strconv.Itoa(n) }
