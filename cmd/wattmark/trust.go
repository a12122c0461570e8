package main

import (
	"context"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api/auth"
	"wattmark/api/client"
	"wattmark/hostagent/monitorclient"
)

// trustFlags are how a command knows the services that it asks, and what it tells
// them of itself.
var trustFlags = []string{"tls-ca", "tls-cert", "tls-key", "token-file"}

func addTrust(fl *pflag.FlagSet, c *auth.Client) {
	fl.StringVar(&c.CA, "tls-ca", "", "CA that monitors and hosts must have their certificate from; speaks TLS (also WATTMARK_TLS_CA)")
	fl.StringVar(&c.Cert, "tls-cert", "", "certificate that says who you are to them (also WATTMARK_TLS_CERT)")
	fl.StringVar(&c.Key, "tls-key", "", "its key (also WATTMARK_TLS_KEY)")
	fl.StringVar(&c.TokenFile, "token-file", "", "file with a token that says who you are (also WATTMARK_TOKEN_FILE; WATTMARK_TOKEN is the token itself)")
}

type trustKey struct{}

// trusting carries how services are known. It is looked at when one is dialled: a
// configuration file may say it after the command line was read.
func trusting(ctx context.Context, c *auth.Client) context.Context {
	return context.WithValue(ctx, trustKey{}, c)
}

// trust is what a connection to an address is dialled with.
func trust(ctx context.Context, address string) ([]grpc.DialOption, error) {
	c, ok := ctx.Value(trustKey{}).(*auth.Client)
	if !ok {
		return nil, nil
	}
	o, err := c.FromEnv().DialOptions(address)
	if err != nil {
		err = withCode(exitUsage, err)
	}
	return o, err
}

// dialMeter dials a monitor as the user said that it is known.
func dialMeter(ctx context.Context, address string, o monitorclient.Options) (*monitorclient.Client, error) {
	more, err := trust(ctx, address)
	if err != nil {
		return nil, err
	}
	o.Dial = append(o.Dial, more...)
	return monitorclient.Dial(address, o)
}

// dialTasks dials a task database as the user said that it is known.
func dialTasks(ctx context.Context, address string) (*client.Client, error) {
	more, err := trust(ctx, address)
	if err != nil {
		return nil, err
	}
	return client.Dial(address, more...)
}

// plainly is a connection without TLS, unless what follows it says otherwise.
func plainly() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }
