package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxBody bounds a request.
const maxBody = 64 << 10

// patience bounds how long a client may take to say what it wants.
const patience = 10 * time.Second

// Listen makes a control socket at path that only this user may connect to. A
// socket that is there is replaced if nobody listens on it.
func Listen(path string) (net.Listener, error) {
	// The socket has its permissions before it has its name.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return failed
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if errors.Is(err, unix.EADDRINUSE) {
		if err = removeStale(path); err == nil {
			l, err = private.Listen(context.Background(), "unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return l, nil
}

// removeStale removes the socket of a server that has gone.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("a file that is not a socket is there; remove it or choose another path")
	}
	probe, err := net.Dial("unix", path)
	if err == nil {
		probe.Close()
		return errors.New("another server listens there; stop it or choose another path")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether a server listens there: %w", err)
	}
	return os.Remove(path)
}

// Serve answers for b on l until ctx ends. It closes l.
func Serve(ctx context.Context, l net.Listener, b Backend, log *slog.Logger) error {
	s := &http.Server{
		Handler: handler(b), ReadTimeout: patience, IdleTimeout: patience,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// What is being answered is finished: a removal half done is worse than a wait.
	end, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := errors.Join(s.Shutdown(end), s.Close())
	<-done
	return err
}

func handler(b Backend) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/status", answer(func(*http.Request) (any, error) { return b.Status() }))
	m.HandleFunc("GET /v1/report", answer(func(*http.Request) (any, error) { return b.Report() }))
	m.HandleFunc("GET /v1/registers", answer(func(r *http.Request) (any, error) { return b.Registers(r.URL.Query().Get("gpu")) }))
	m.HandleFunc("GET /v1/scheduler", answer(func(*http.Request) (any, error) { return b.Schedule() }))
	m.HandleFunc("PATCH /v1/scheduler", answer(func(r *http.Request) (any, error) {
		s, err := request[SetRequest](r)
		if err != nil {
			return nil, err
		}
		return b.SetSchedule(s)
	}))
	m.HandleFunc("POST /v1/gpus", answer(func(r *http.Request) (any, error) {
		a, err := request[AddRequest](r)
		if err != nil {
			return nil, err
		}
		return b.Add(a)
	}))
	m.HandleFunc("PATCH /v1/gpus/{name}", answer(func(r *http.Request) (any, error) {
		s, err := request[SetRequest](r)
		if err != nil {
			return nil, err
		}
		return b.Set(r.PathValue("name"), s)
	}))
	m.HandleFunc("GET /v1/gpus/{name}", answer(func(r *http.Request) (any, error) { return b.Show(r.PathValue("name")) }))
	m.HandleFunc("DELETE /v1/gpus/{name}", answer(func(r *http.Request) (any, error) {
		return b.Remove(r.PathValue("name"), r.URL.Query().Get("force") == "true")
	}))
	m.HandleFunc("/", answer(func(r *http.Request) (any, error) {
		return nil, NotFound("no such request: %s %s", r.Method, r.URL.Path)
	}))
	return m
}

// request reads what is asked for.
func request[T any](r *http.Request) (out T, err error) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return out, Invalid("request: %v", err)
	}
	return out, nil
}

// answer writes what f returns.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := f(r)
		code := http.StatusOK
		if err != nil {
			e := &Error{http.StatusInternalServerError, err.Error()}
			errors.As(err, &e)
			v, code = e, e.Code
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v) // who hangs up wants no answer
	}
}
