package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"wattmark/store/relay"
)

// Stores ask for their consumers by the server's own subject, which their accounts map to one of
// the nodes'. A node passes on what a store needs, and nothing else of the request: a
// consumer that delivers by itself could be told to deliver stored messages to any subject, as
// requests to the server for one.
const (
	createConsumer = "$JS.API.CONSUMER.CREATE."
	nodeConsumer   = "wattmark-node.consumer."
)

// createWithin is how long the server may take to make a consumer.
const createWithin = 5 * time.Second

// serveConsumers answers stores until the connection that it returns is closed.
func serveConsumers(s *server.Server, secret string) (*nats.Conn, error) {
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo(relay.User, secret), nats.MaxReconnects(-1), nats.Name("wattmark node"))
	if err != nil {
		return nil, err
	}
	_, err = nc.QueueSubscribe(nodeConsumer+">", "nodes", func(m *nats.Msg) {
		go func() { _ = m.Respond(makeConsumer(nc, m)) }() // who has gone asks again
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// makeConsumer returns the server's answer to a request.
func makeConsumer(nc *nats.Conn, m *nats.Msg) []byte {
	var asked struct {
		Stream string                   `json:"stream_name"`
		Config jetstream.ConsumerConfig `json:"config"`
		Action string                   `json:"action,omitempty"`
	}
	err := json.Unmarshal(m.Data, &asked)
	c := asked.Config
	if err == nil {
		err = relay.CheckName(c.Durable)
	}
	if err != nil {
		return refusal(err)
	}
	asked.Config = jetstream.ConsumerConfig{
		Name: c.Durable, Durable: c.Durable, Description: c.Description, FilterSubject: c.FilterSubject, DeliverPolicy: c.DeliverPolicy,
		AckPolicy: c.AckPolicy, AckWait: c.AckWait, MaxAckPending: c.MaxAckPending, MaxDeliver: c.MaxDeliver,
	}
	content, err := json.Marshal(asked)
	if err != nil {
		return refusal(err)
	}
	answer, err := nc.Request(createConsumer+strings.TrimPrefix(m.Subject, nodeConsumer), content, createWithin)
	if err != nil {
		return refusal(err)
	}
	return answer.Data
}

func refusal(err error) []byte {
	b, _ := json.Marshal(map[string]any{ // of texts and numbers there is no error
		"type":  "io.nats.jetstream.api.v1.consumer_create_response",
		"error": jetstream.APIError{Code: 403, Description: fmt.Sprintf("this consumer is not made: %v", err)},
	})
	return b
}
