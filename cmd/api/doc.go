// Package api is the way to a running server: HTTP with JSON over a UNIX
// socket that only the server's own user may use. There is no TCP.
//
//	GET    /v1/status                  what is served, and to whom
//	POST   /v1/gpus                    add a virtual GPU
//	GET    /v1/gpus/NAME               everything about one, its options and who said them
//	PATCH  /v1/gpus/NAME               change its options while its guest runs
//	DELETE /v1/gpus/NAME?force=true    remove one
//	GET    /v1/scheduler               how the card's time is shared, and who had how much
//	PATCH  /v1/scheduler               change that, while guests run
//	GET    /v1/registers?gpu=NAME      the register table with counts, of one GPU or of all
//	GET    /v1/report                  what happened so far
//
// [Serve] answers for a [Backend]; [Client] asks. An answer that is not 200 is an
// [Error], with what is wrong and what would be right.
//
// The package has no state. Serve runs net/http's goroutines, which have ended
// when it returns.
package api
