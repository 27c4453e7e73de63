package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// maxBody bounds the size of a request.
const maxBody = 64 << 10

// requestTimeout bounds the time that a client may take to send a request, and to take the reply.
const requestTimeout = 10 * time.Second

// lastRequests bounds the wait for requests in progress when the server ends. Only a GPU's removal takes
// longer, which waits for a client: it goes on, beside the end of the other GPUs.
const lastRequests = time.Second

// Serve answers requests on l for b until ctx ends. It closes l.
func Serve(ctx context.Context, l net.Listener, b Backend, log *slog.Logger) error {
	return serve(ctx, l, b, log, requestTimeout)
}

func serve(ctx context.Context, l net.Listener, b Backend, log *slog.Logger, timeout time.Duration) error {
	s := &http.Server{
		Handler: handler(b, timeout), ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), lastRequests)
	defer cancel()
	_ = s.Shutdown(end) // some request, or its client, was late
	err := s.Close()
	<-done
	return err
}

func handler(b Backend, timeout time.Duration) http.Handler {
	m := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			v, err := f(r)
			answer(w, v, err, timeout)
		})
	}
	name := func(r *http.Request) string { return r.PathValue("name") }
	handle("GET /v1/status", func(*http.Request) (any, error) { return b.Status() })
	handle("GET /v1/report", func(*http.Request) (any, error) { return b.Report() })
	handle("GET /v1/registers", func(r *http.Request) (any, error) { return b.Registers(r.URL.Query().Get("gpu")) })
	handle("GET /v1/scheduler", func(*http.Request) (any, error) { return b.Scheduler() })
	handle("GET /v1/gpus/{name}", func(r *http.Request) (any, error) { return b.Show(name(r)) })
	handle("DELETE /v1/gpus/{name}", func(r *http.Request) (any, error) {
		return b.Remove(name(r), r.URL.Query().Get("force") == "true")
	})
	handle("POST /v1/reload", func(*http.Request) (any, error) { return b.Reload() })
	handle("POST /v1/gpus", withBody(func(_ *http.Request, a AddRequest) (any, error) { return b.Add(a) }))
	handle("PATCH /v1/gpus/{name}", withBody(func(r *http.Request, s SetRequest) (any, error) { return b.Set(name(r), s) }))
	handle("PATCH /v1/scheduler", withBody(func(_ *http.Request, s SetRequest) (any, error) { return b.SetScheduler(s) }))
	handle("/", func(r *http.Request) (any, error) {
		return nil, NotFound("no such request: %s %s", r.Method, r.URL.Path)
	})
	return m
}

// withBody decodes the body of a request.
func withBody[T any](f func(*http.Request, T) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var body T
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			return nil, Invalid("request: %v", err)
		}
		return f(r, body)
	}
}

// answer writes the result of a request.
func answer(w http.ResponseWriter, v any, err error, timeout time.Duration) {
	code := http.StatusOK
	if err != nil {
		e := &Error{http.StatusInternalServerError, err.Error()}
		errors.As(err, &e)
		v, code = e, e.Code
	}
	// The server's own limit includes the request's work. This fails for no connection of a server.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
}
