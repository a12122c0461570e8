// Package api is the task database's service over gRPC: TaskService of
// wattmark.v1 over a store, with health and reflection.
//
//	wattmarkv1/  the generated messages and stubs
//	wire/        conversions and the codec that moves chunks without copying
//	client/      a Go client with the types of measure
//
// Errors are mapped to gRPC codes in errors.go and nowhere else.
package api
