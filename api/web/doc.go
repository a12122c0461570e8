// Package web serves TaskService as JSON over HTTP: the calls that
// proto/wattmark/v1/http.yaml maps, their OpenAPI file, health and, where wanted,
// metrics and profiles. The generated gateway calls the gRPC server; this
// package adds what stands around it: strict requests, headers, limits.
//
//	GET /               the page, with its files below /assets/
//	GET /v1/…           the calls
//	GET /openapi.json   what they take and give (OpenAPI 2.0)
//	POST /wattmark.v1.TaskService/…   the calls as gRPC-Web
//	GET /healthz        health, as gRPC's
//	GET /metrics        for Prometheus
//	GET /debug/pprof/   profiles
//
// Who is there is asked where Options.Ask says so (package api/auth/signin). Else serve
// it on a loopback address alone. Requests that a browser makes for another site's page
// are refused in any case.
package web
