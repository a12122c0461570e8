// Package store is the task database: SQLite by default. Raw counts are kept
// as chunks; watts and joules are derived from them and the calibration that
// was in force. The view data serves the paper's twelve columns.
package store
