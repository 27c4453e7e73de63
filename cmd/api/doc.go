// Package api is the control API of a running server: HTTP with JSON over a UNIX
// socket, whose permissions say who may use it.
//
// [Routes] are its requests. An answer other than 200 is an [Error]. [Handler] answers for
// a [Backend], [Serve] bounds what clients cost, and [Client] sends requests.
//
// The types here are all that the umbra commands print with --json, too.
// docs/reference/openapi.json is generated from them, their tags and comments. Keys
// are in snake_case, durations are integers in keys that end in _ns, and sizes
// are integers of bytes.
//
// The package has no state but the list of connections of each Serve, whose lock is
// taken last. Serve runs net/http's goroutines, which have ended when it returns.
package api
