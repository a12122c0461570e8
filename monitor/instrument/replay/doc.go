// Package replay keeps what an instrument delivered, and plays it again as an
// instrument.
//
// A recording is a folder of three files that people and other programs can read
// and write:
//
//	recording.json   what the instrument was: identity, timebase, response, channels
//	scans.csv        scan,tick,<one column a channel>: raw counts; a jump of scan is a gap
//	events.csv       kind,first_scan,scans,exact,channel,detail
package replay
