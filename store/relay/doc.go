// Package relay carries tasks from the databases of many hosts to any number of
// stores, over NATS JetStream, whose replicated log stands between them:
//
//	host's database ─▶ Publisher ─▶ stream (three replicas) ─▶ Consumer ─▶ store
//	                   chunks, rest, end                       by its end
//	monitor's spool ─▶ Capture ──▶ the same chunks
//
// A task is a handful of subjects in one of the streams, the partitions:
//
//	wattmark.<partition>.<by>.<source>.capture.chunk  coded chunks, in pieces of at most 512 KiB
//	wattmark.<partition>.<by>.<source>.capture.index  which chunks a monitor has published
//	wattmark.<partition>.<by>.<source>.<key>.rest     an index of the chunks, and all rows but samples
//	wattmark.<partition>.<by>.<source>.<key>.end      what names the pieces of the rest; it comes last
//	wattmark.<partition>.<by>.<source>.<key>.aside    why a store could not take it
//
// Who published a message stands in its subject, which the nodes enforce: the name of a user who
// may publish nobody else's tasks, in hexadecimal, or _ for who publishes for all. A task is
// made of its user's messages and of those of _ alone.
//
// The source names the samples: a digest of the capture and its bench, which the host and
// the monitor both know, so that either may publish them. The key follows from what a task
// is known by: monitor, capture, launch, GPU, user and name; the partition follows from the
// source. Every piece bears source or key, kind and number as its message id, and every one
// is acknowledged by the stream before the next step is taken; the end is published once all
// else is acknowledged. So a task with an end is whole, and who has the end's acknowledgement
// may let go of the capture.
//
// A monitor publishes a capture's samples as they become durable (Capture), and files the
// capture as a task of its own, an orphan, where no host has published one in time.
//
// A consumer is given ends alone. It fetches the pieces by the sequence numbers of
// their acknowledgements, stores the task in transactions, and acknowledges the end
// after the last one. Whatever comes twice – a message, an end, a whole task – is
// known by the store and left as it is.
package relay
