// Package exchange turns stored tasks into tables and timelines that other
// programs read, and their files into tasks. It knows no file format: the
// packages below it do, one each.
//
//	chunks ──▶ Table (columns, units, Meta; batches) ──▶ csvfile, parquetfile, arrowfile, sqlitefile
//	launches, kernels, markers, events, rails ──▶ Timeline ──▶ perfetto, chrome
//
// Everything streams: a table is a sequence of batches of BatchRows rows whose
// memory is used again, whatever the length of the task.
package exchange
