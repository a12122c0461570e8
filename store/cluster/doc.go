// Package cluster runs one node of the cluster that stands between hosts and stores: a
// NATS server with JetStream, in this process. Three nodes on three machines hold every
// message three times, and go on when one of them is gone.
package cluster
