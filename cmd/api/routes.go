package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// A Route is one request of the API. The OpenAPI file is made of them.
type Route struct {
	Pattern string // as net/http has it
	About   string
	Query   map[string]string // what each parameter means
	Body    any               // of the type that is wanted; nil if none is
	Answer  any               // of the type that is returned

	serve  func(Backend, *http.Request) (any, error)
	stream func(Backend, *http.Request, io.Writer) error // in place of serve and Answer: a file that goes on
}

// Routes are all requests of the API.
func Routes() []Route {
	name := func(r *http.Request) string { return r.PathValue("name") }
	return append([]Route{
		route("GET /v1/status", "The server, its card and its GPUs.", nil, func(b Backend, _ *http.Request) (Status, error) { return b.Status() }),
		route("GET /v1/report", "Everything that the server counted.", nil, func(b Backend, _ *http.Request) (Report, error) { return b.Report() }),
		withBody("POST /v1/gpus", "Adds a virtual GPU.", func(b Backend, _ *http.Request, a AddRequest) (GPU, error) { return b.Add(a) }),
		route("GET /v1/gpus/{name}", "Everything about one GPU.", nil, func(b Backend, r *http.Request) (GPUReport, error) { return b.Show(name(r)) }),
		withBody("PATCH /v1/gpus/{name}", "Changes options of a virtual GPU.", func(b Backend, r *http.Request, s SetRequest) (GPU, error) { return b.Set(name(r), s) }),
		route("DELETE /v1/gpus/{name}", "Removes a virtual GPU, and returns what it counted.", map[string]string{"force": "true disconnects a client that is attached."},
			func(b Backend, r *http.Request) (GPUReport, error) {
				return b.Remove(name(r), r.URL.Query().Get("force") == "true")
			}),
		withBody("POST /v1/gpus/{name}/inject", "Plants a fault in a GPU, for tests of its guest's driver.", func(b Backend, r *http.Request, i InjectRequest) (Injected, error) { return b.Inject(name(r), i) }),
		route("GET /v1/scheduler", "How the card's time is shared.", nil, func(b Backend, _ *http.Request) (Scheduler, error) { return b.Scheduler() }),
		withBody("PATCH /v1/scheduler", "Changes options of the scheduler.", func(b Backend, _ *http.Request, s SetRequest) (Scheduler, error) { return b.SetScheduler(s) }),
		route("GET /v1/registers", "The register table of one GPU, or of all.", map[string]string{"gpu": "Name of the GPU."},
			func(b Backend, r *http.Request) (RegisterTable, error) { return b.Registers(r.URL.Query().Get("gpu")) }),
		route("GET /v1/config", "The configuration that makes the same server again.", nil, func(b Backend, _ *http.Request) (Saved, error) { return b.Save() }),
		route("POST /v1/reload", "Reads the configuration file again and applies what changed in it.", nil, func(b Backend, _ *http.Request) (Reload, error) { return b.Reload() }),
	}, streams...)
}

func route[A any](pattern, about string, query map[string]string, f func(Backend, *http.Request) (A, error)) Route {
	var answer A
	return Route{Pattern: pattern, About: about, Query: query, Answer: answer, serve: func(b Backend, r *http.Request) (any, error) { return f(b, r) }}
}

// withBody is a route of a request with a body.
func withBody[B, A any](pattern, about string, f func(Backend, *http.Request, B) (A, error)) Route {
	var body B
	r := route(pattern, about, nil, func(b Backend, r *http.Request) (answer A, err error) {
		var body B
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		switch err := d.Decode(&body); {
		case errors.As(err, new(*http.MaxBytesError)):
			return answer, newError(http.StatusRequestEntityTooLarge, "body", "", "request: the body is too large; send 1MiB at most")
		case err != nil:
			return answer, Invalid("body", "", "request: %v", err)
		}
		return f(b, r, body)
	})
	r.Body = body
	return r
}
