// Package store is the task database: SQLite by default. Raw counts are kept
// as chunks; watts and joules are derived from them and the calibration that
// was in force. The view data serves the paper's twelve columns in any stock
// sqlite3 program; on this package's own connections a virtual table of the
// same name takes its place and is many times faster.
//
//	BeginTask ─▶ PutHeader ─▶ AppendChunks … ─▶ Finish     one writer
//	Task, Tasks, Users, Chunks, SQL                         many readers
//
// Every call that writes is one transaction, on disk when the call returns
// (WAL, synchronous=EXTRA): after a crash, what was acknowledged is there and
// what was not is not there by halves. docs/format.md describes the file.
//
// A database on a server takes the file's place where its address is opened; see
// Server, and package store/postgres.
package store
