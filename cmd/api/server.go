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

// maxBody and maxHeader bound the size of a request.
const (
	maxBody   = 1 << 20
	maxHeader = 16 << 10
)

// requestTimeout bounds the time that a client may take to send a request, and to take the reply.
const requestTimeout = 10 * time.Second

// lastRequests bounds the wait for requests in progress when the server ends. Only a GPU's removal takes
// longer, which waits for a client: it goes on, beside the end of the other GPUs.
const lastRequests = time.Second

// Serve answers requests on l by h until ctx ends. It closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	return serve(ctx, l, h, log, requestTimeout)
}

func serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger, timeout time.Duration) error {
	open := &conns{since: make(map[net.Conn]time.Time)}
	s := &http.Server{
		Handler: h, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout, MaxHeaderBytes: maxHeader, ConnState: open.note,
		BaseContext: func(net.Listener) context.Context { return ctx }, // a recording ends with the server
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelWarn),
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

// Handler answers the API's requests for b, and those of Prometheus by metrics.
func Handler(b Backend, metrics http.Handler) http.Handler {
	m := http.NewServeMux()
	for _, r := range Routes() {
		m.HandleFunc(r.Pattern, func(w http.ResponseWriter, req *http.Request) {
			req.Body = http.MaxBytesReader(w, req.Body, maxBody)
			if r.stream != nil {
				answerStream(w, req, &r, b)
				return
			}
			v, err := r.serve(b, req)
			answer(w, req, v, err)
		})
	}
	m.Handle("GET /metrics", metrics)
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, nil, NotFound("request", r.Method+" "+r.URL.Path, "no such request: %s %s; docs/reference/openapi.json has all", r.Method, r.URL.Path))
	})
	return m
}

// answer writes the result of a request.
func answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	code := http.StatusOK
	if err != nil {
		e := &Error{Code: http.StatusInternalServerError, Message: err.Error(), Causes: []Cause{}}
		errors.As(err, &e)
		v, code = e, e.Code
	}
	// The server's own limit includes the request's work. This fails for no connection of a server.
	limit := r.Context().Value(http.ServerContextKey).(*http.Server).WriteTimeout
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails if the client has disconnected
}
