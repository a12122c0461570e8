// Package reports is wattmark.v1.ReportService: what is known of GPUs' own sensors,
// and a task's validation. A validation is worked out when somebody asks for it, so
// it is of the result in force; what was kept under a name is what was said then.
//
//	Service   the calls, over the store
//	judge     works validations out: one at a time, the last ones kept
package reports
