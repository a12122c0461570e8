// Package client reads a task database over gRPC with the types of measure:
// watts are measure.Watt, a missing window is a missing window, and a stream
// is an iterator that closes itself.
//
//	c, err := client.Dial("gpu-host:7500")
//	defer c.Close()
//	for task, err := range c.Tasks(ctx, client.Query{User: "lab"}) { … }
//	for item, err := range c.Samples(ctx, 42, client.Range{}) { … }
//
// Errors are those of gRPC (status.FromError), or wrap wire.ErrMessage when the
// answer cannot be what it claims to be.
package client
