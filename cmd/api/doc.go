// Package api is the control API of a running server: HTTP with JSON over a UNIX
// socket, whose permissions say who may use it. There is no TCP.
//
//	GET    /v1/status                  Status
//	GET    /v1/report                  Report
//	POST   /v1/gpus                    AddRequest -> GPU
//	GET    /v1/gpus/NAME               GPUReport
//	PATCH  /v1/gpus/NAME               SetRequest -> GPU
//	DELETE /v1/gpus/NAME?force=true    GPUReport
//	GET    /v1/scheduler               Scheduler
//	PATCH  /v1/scheduler               SetRequest -> Scheduler
//	GET    /v1/registers?gpu=NAME      RegisterTable
//	POST   /v1/reload                  Reload
//
// An answer other than 200 is an [Error]. [Serve] answers for a [Backend], and
// [Client] sends requests.
//
// The types here are all that the umbra commands print with --json, too.
// docs/reference/api.schema.json is generated from them and their comments. Keys
// are in snake_case, durations are integers in keys that end in _ns, and sizes
// are integers of bytes.
//
// The package has no state. Serve runs net/http's goroutines, which have ended
// when it returns.
package api
