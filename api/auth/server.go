package auth

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// ServerOptions make a gRPC server ask who calls. c is nil where TLS is not spoken. A
// caller is let in, or not, before anything that it sends is read; whoever is let in is
// asked by then, as a server has room for one tap. How long a caller may take to say
// hello is not said here: api/limits does.
func (g *Guard) ServerOptions(c *tls.Config, then ...tap.ServerInHandle) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(Handshakes(c)),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			ctx, err := g.admit(ctx, info)
			for i := 0; i < len(then) && err == nil; i++ {
				ctx, err = then[i](ctx, info)
			}
			return ctx, err
		}),
		grpc.ChainUnaryInterceptor(g.unary),
		grpc.ChainStreamInterceptor(g.stream),
	}
}

// admit looks at a call before its messages.
func (g *Guard) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	row, known := Rows[info.FullMethodName]
	if known && row.Role == Nobody {
		return With(ctx, Identity{}), nil
	}
	who, from, err := g.caller(ctx, info.Header)
	switch {
	case err != nil:
	case !known:
		err = fmt.Errorf("%w: %s is no call of this server", ErrDenied, shown(info.FullMethodName))
	case who.Role < row.Role:
		err = who.less(row.Role)
	}
	if err != nil {
		err = Status(err)
		g.cfg.Audit.Keep(Entry{Who: who, From: from, What: info.FullMethodName, Code: status.Code(err).String(), Why: status.Convert(err).Message()})
		return ctx, err
	}
	return withFrom(With(ctx, who), from), nil
}

// caller says who calls, and from where.
func (g *Guard) caller(ctx context.Context, header metadata.MD) (who Identity, from string, err error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return who, "", fmt.Errorf("%w: %s", ErrUnknown, howTo)
	}
	if p.Addr != nil {
		from = p.Addr.String()
	}
	switch info := p.AuthInfo.(type) {
	case inside:
		return relayed(header)
	case account:
		who = g.account(info.uid)
		return who, fmt.Sprintf("uid %d", info.uid), nil
	case credentials.TLSInfo:
		if len(header.Get("authorization")) == 0 {
			who, err = g.Certificate(info.State.VerifiedChains)
			return who, from, err
		}
	}
	if said := header.Get("authorization"); len(said) == 1 {
		who, err = g.Header(said[0])
		return who, from, err
	}
	return who, from, fmt.Errorf("%w: %s", ErrUnknown, howTo)
}

// Status turns a refusal into a gRPC status; other errors stay as they are.
func Status(err error) error {
	switch {
	case errors.Is(err, ErrUnknown):
		return status.Error(codes.Unauthenticated, err.Error())
	case errors.Is(err, ErrDenied):
		return status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, ErrRegistry): // where it is, is nobody's business
		return status.Error(codes.Unavailable, ErrRegistry.Error()+": the server's log says why")
	}
	return err
}

// relayHeader tells, within this program, who asks; names need not be ASCII. From
// elsewhere it is not looked at.
const relayHeader = "wattmark-relayed-bin"

// relay is what is told.
type relay struct {
	Who  Identity `json:"who"`
	From string   `json:"from"`
}

func relayed(header metadata.MD) (Identity, string, error) {
	said := header.Get(relayHeader)
	if len(said) != 1 {
		return Identity{}, "", fmt.Errorf("%w: %s", ErrUnknown, howTo)
	}
	var r relay
	if err := json.Unmarshal([]byte(said[0]), &r); err != nil {
		return Identity{}, "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return r.Who, r.From, nil
}

// RelayOptions dial the other end of a listener that is Inside: calls are made for who
// asks by the context that they are made with.
func RelayOptions() []grpc.DialOption {
	tell := func(ctx context.Context) context.Context {
		who, known := From(ctx)
		if !known {
			return ctx
		}
		b, err := json.Marshal(relay{who, fromOf(ctx)})
		if err != nil { // a stranger has no role to be written
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, relayHeader, string(b))
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return invoke(tell(ctx), method, req, reply, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(tell(ctx), d, cc, method, o...)
		}),
	}
}

type fromKey struct{}

func withFrom(ctx context.Context, from string) context.Context {
	return context.WithValue(ctx, fromKey{}, from)
}

func fromOf(ctx context.Context) string {
	s, _ := ctx.Value(fromKey{}).(string)
	return s
}

// WithFrom returns a context of what somebody asks from an address.
func WithFrom(ctx context.Context, i Identity, from string) context.Context {
	return withFrom(With(ctx, i), from)
}
