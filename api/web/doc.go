// Package web serves TaskService as JSON over HTTP: the calls that
// proto/wattmark/v1/http.yaml maps, their OpenAPI file, health and, where wanted,
// metrics and profiles. The generated gateway calls the gRPC server; this
// package adds what stands around it: strict requests, headers, limits.
//
//	GET /v1/…           the calls
//	GET /openapi.json   what they take and give (OpenAPI 2.0)
//	GET /healthz        health, as gRPC's
//	GET /metrics        for Prometheus
//	GET /debug/pprof/   profiles
//
// There is no authentication. Serve it on a loopback address, where requests
// that a browser makes for another site's page are refused.
package web
