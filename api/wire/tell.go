package wire

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// VersionHeader is the header in which a server of ours tells its version with
// every answer.
const VersionHeader = "wattmark-version"

// TellVersion makes a server tell its version.
func TellVersion(version string) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			// A client that has gone does not want it.
			_ = grpc.SetHeader(ctx, metadata.Pairs(VersionHeader, version))
			return handle(ctx, q)
		}),
	}
}
