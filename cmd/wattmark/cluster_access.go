package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"wattmark/api/auth"
	"wattmark/store/cluster"
	"wattmark/store/relay"
)

// rights are what the roles may do with a cluster. Hosts and monitors publish; a store
// removes what all have taken.
var rights = map[auth.Role]cluster.Right{
	auth.Viewer: cluster.Reads, auth.Measurer: cluster.Publishes, auth.Operator: cluster.Takes, auth.Admin: cluster.Runs,
}

// guard fills in who a node lets in, and refuses addresses at which it would let in
// everybody from elsewhere.
func (f *nodeFlags) guard() (*access, error) {
	x, err := f.access.open(f.cfg.Log)
	if err != nil {
		return nil, err
	}
	refuse := func(err error) (*access, error) { return nil, errors.Join(err, x.audit.Close()) }
	if x.server != nil && f.cfg.Password != "" {
		return refuse(withCode(exitUsage, errors.New("--password-file and --auth: choose one; with --auth clients have tokens or certificates")))
	}
	if x.server == nil && x.asks {
		return refuse(withCode(exitUsage, errors.New("tokens travel over TLS alone here: name --serve-cert and --serve-key too, or a folder made by wattmark auth init")))
	}
	if x.server != nil {
		if f.cfg.Access, err = x.cluster(); err != nil {
			return refuse(withCode(exitUsage, err))
		}
	}
	addresses := []string{f.cfg.Listen}
	if len(f.cfg.Peers) > 0 {
		addresses = append(addresses, f.cfg.Cluster)
	}
	for _, a := range addresses {
		at, err := net.ResolveTCPAddr("tcp", a)
		if err == nil {
			err = x.check(at)
		}
		if err != nil {
			return refuse(err)
		}
	}
	if f.cfg.Monitor == "" {
		return x, nil
	}
	open := access{insecure: x.insecure, log: x.log} // nobody is asked there
	at, err := net.ResolveTCPAddr("tcp", f.cfg.Monitor)
	if err == nil {
		err = open.check(at)
	}
	if err != nil {
		return refuse(fmt.Errorf("--http: %w", err))
	}
	return x, nil
}

// cluster is how a node asks.
func (x *access) cluster() (*cluster.Access, error) {
	nodes, err := x.server.Nodes()
	if err != nil {
		return nil, err
	}
	return &cluster.Access{
		Clients: x.server.Config(), Nodes: nodes,
		Admit: func(c *tls.ConnectionState, token string) (cluster.Guest, error) {
			var who auth.Identity
			var err error
			if token != "" {
				who, err = x.guard.Header("Bearer " + token)
			} else {
				who, err = x.guard.Certificate(c.VerifiedChains)
			}
			return cluster.Guest{Name: who.Name, Right: rights[who.Role], Valid: func() error { return x.guard.Valid(who) }}, err
		},
	}, nil
}

// trustCluster says how nodes are known, and what they are told of this command, by the
// flags by which monitors and hosts are.
func trustCluster(ctx context.Context, o *relay.Options) error {
	c, ok := ctx.Value(trustKey{}).(*auth.Client)
	if !ok {
		return nil
	}
	client := c.FromEnv()
	for _, s := range strings.Split(o.Servers, ",") {
		host, speaks := strings.TrimSpace(s), false
		if u, err := url.Parse(host); err == nil && u.Host != "" {
			host, speaks = u.Host, u.Scheme == "tls"
		}
		token, secure, err := client.Secret(host)
		if err != nil {
			return withCode(exitUsage, err)
		}
		o.Token = token
		if !secure && !speaks || o.TLS != nil {
			continue
		}
		if o.TLS, err = client.TLS(); err != nil {
			return withCode(exitUsage, err)
		}
	}
	return nil
}
