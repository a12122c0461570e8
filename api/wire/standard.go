package wire

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// RegisterStandard adds gRPC's health and reflection services to a server whose
// own services are registered already, and reports each of those, and the
// server as a whole (""), as serving.
func RegisterStandard(server *grpc.Server) *health.Server {
	h := health.NewServer() // "" serves from the start
	for name := range server.GetServiceInfo() {
		h.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, h)
	reflection.Register(server)
	return h
}
