package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// fake answers some requests with what it was asked.
type fake struct{ Backend }

func (fake) Status() (Status, error) { return Status{Version: "v"}, nil }
func (fake) Report() (Report, error) { return Report{}, errors.New("broken") }
func (fake) Add(a AddRequest) (GPU, error) {
	if a.GPU == "" {
		return GPU{}, Invalid("gpu", "", "nothing to add; say name=a")
	}
	return GPU{Name: a.GPU}, nil
}
func (fake) Remove(name string, force bool) (GPUReport, error) {
	if !force {
		return GPUReport{}, Conflict("gpu", name, "%s is in use", name)
	}
	return GPUReport{GPU: GPU{Name: name}}, nil
}
func (fake) Set(name string, s SetRequest) (GPU, error) {
	return GPU{Name: name, Changes: []Change{{After: s.Options}}}, nil
}
func (fake) Show(name string) (GPUReport, error) {
	switch name {
	case "slow":
		time.Sleep(600 * time.Millisecond)
	case "nobody":
		return GPUReport{}, NotFound("gpu", name, "no GPU %s", name)
	}
	return GPUReport{GPU: GPU{Name: name}}, nil
}
func (fake) Registers(gpu string) (RegisterTable, error) {
	return RegisterTable{GPUs: []string{gpu}}, nil
}

func startWith(t *testing.T, timeout time.Duration) (path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "control.sock")
	l, err := vfiouser.Listen(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, l, Handler(fake{}, http.NotFoundHandler()), slog.New(slog.DiscardHandler), timeout)
	}()
	end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("the server's end waits for a client")
		}
		require.NoFileExists(t, path)
		goleak.VerifyNone(t)
	})
	t.Cleanup(end)
	return path, end
}

// TestRequests: names reach the server as they are, and errors come back with their codes.
func TestRequests(t *testing.T) {
	path, _ := startWith(t, requestTimeout)
	c, ctx := NewClient(path), t.Context()
	const name = "a b/c&d"
	g, err := c.Set(ctx, name, SetRequest{Options: "k=v"})
	require.NoError(t, err)
	require.Equal(t, GPU{Name: name, Changes: []Change{{After: "k=v"}}}, g)
	r, err := c.Show(ctx, name)
	require.NoError(t, err)
	require.Equal(t, name, r.Name)
	r, err = c.Remove(ctx, name, true)
	require.NoError(t, err)
	require.Equal(t, name, r.Name)
	table, err := c.Registers(ctx, name)
	require.NoError(t, err)
	require.Equal(t, []string{name}, table.GPUs)

	for _, e := range []struct {
		code int
		text string
		err  error
	}{
		{http.StatusBadRequest, "nothing to add; say name=a", second(c.Add(ctx, AddRequest{}))},
		{http.StatusBadRequest, `request: json: unknown field "policy"`, c.do(ctx, http.MethodPatch, "scheduler", map[string]string{"policy": "band"}, nil)},
		{http.StatusRequestEntityTooLarge, "request: the body is too large; send 1MiB at most", second(c.Add(ctx, AddRequest{strings.Repeat("x", maxBody)}))},
		{http.StatusConflict, "a is in use", second(c.Remove(ctx, "a", false))},
		{http.StatusNotFound, "no GPU nobody", second(c.Show(ctx, "nobody"))},
		{http.StatusNotFound, "no such request: GET /v1/else; docs/reference/openapi.json has all", c.do(ctx, http.MethodGet, "else", nil, nil)},
		{http.StatusNotFound, "no such request: PUT /v1/status; docs/reference/openapi.json has all", c.do(ctx, http.MethodPut, "status", nil, nil)},
		{http.StatusInternalServerError, "broken", second(c.Report(ctx))},
	} {
		var got *Error
		require.ErrorAs(t, e.err, &got)
		require.Equal(t, e.code, got.Code)
		require.Equal(t, e.text, got.Message)
		if e.code != http.StatusInternalServerError {
			require.NotEmpty(t, got.Causes[0].Thing, e.text)
		}
	}
	var got *Error
	require.ErrorAs(t, second(c.Add(ctx, AddRequest{})), &got)
	require.Equal(t, []Cause{{Thing: "gpu", Problem: "nothing to add", Remedy: "say name=a"}}, got.Causes)
}

func second[T any](_ T, err error) error { return err }

var request = []byte("GET /v1/status HTTP/1.1\r\nHost: umbra\r\n\r\n")

// flood sends requests until the server does not read them, for want of a reader of its replies.
func flood(t *testing.T, path string) net.Conn {
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.(*net.UnixConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for full := 0; full < 100; full++ { // the server may be slow
			n, err := unix.SendmsgN(int(fd), request, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if err == nil && n == len(request) {
				full = 0
				continue
			}
			time.Sleep(time.Millisecond)
		}
	}))
	return conn
}

// TestUnreadReplies: a client that does not read replies loses its connection, but no client whose
// request takes long.
func TestUnreadReplies(t *testing.T) {
	path, _ := startWith(t, 500*time.Millisecond)
	_, err := NewClient(path).Show(t.Context(), "slow")
	require.NoError(t, err)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write(bytes.Repeat(request, 1<<18)) // their replies fill every buffer
	require.ErrorIs(t, err, syscall.EPIPE)
}

// TestCrowd: many idle clients, and one that sends without end, keep nobody away and cost the server no more than
// the connections and the body that it takes.
func TestCrowd(t *testing.T) {
	path, _ := startWith(t, time.Hour)
	dial := func() net.Conn {
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var idle []net.Conn
	for range 1000 {
		idle = append(idle, dial())
	}
	c := NewClient(path)
	_, err := c.Status(t.Context())
	require.NoError(t, err)
	closed := 0
	for _, conn := range idle[:1000-maxConns] { // the oldest
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	require.Equal(t, 1000-maxConns, closed)

	large := dial()
	_, err = fmt.Fprintf(large, "POST /v1/gpus HTTP/1.1\r\nHost: umbra\r\nContent-Length: %d\r\n\r\n{\"gpu\":\"", 100_000_000)
	require.NoError(t, err)
	sent, part := 0, bytes.Repeat([]byte("x"), 1<<16)
	for err == nil && sent < 100_000_000 {
		n, writeErr := large.Write(part)
		sent, err = sent+n, writeErr
	}
	require.Error(t, err)
	require.Less(t, sent, 4*maxBody)
	_, err = c.Status(t.Context())
	require.NoError(t, err)
}

// stuck does not finish a removal before released is closed.
type stuck struct {
	fake
	begun, released chan struct{}
}

func (s stuck) Remove(string, bool) (GPUReport, error) {
	close(s.begun)
	<-s.released
	return GPUReport{}, nil
}

// TestEndBesideRequests: the server's end does not wait for the end of a removal.
func TestEndBesideRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := vfiouser.Listen(path)
	require.NoError(t, err)
	b := stuck{begun: make(chan struct{}), released: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done, removed := make(chan error, 1), make(chan struct{})
	go func() {
		done <- serve(ctx, l, Handler(b, http.NotFoundHandler()), slog.New(slog.DiscardHandler), time.Hour)
	}()
	go func() {
		defer close(removed)
		_, _ = NewClient(path).Remove(t.Context(), "a", true)
	}()
	<-b.begun
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("the server's end waits for a request")
	}
	close(b.released)
	<-removed
}

// TestEndWaitsForNoClient: the server's end waits neither for the rest of a request nor for the reader of
// a reply.
func TestEndWaitsForNoClient(t *testing.T) {
	path, end := startWith(t, time.Hour)
	flood(t, path)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = conn.Write([]byte("POST /v1/gpus HTTP/1.1\r\nHost: umbra\r\nContent-Length: 9\r\n\r\n{"))
	require.NoError(t, err)
	_, err = NewClient(path).Status(t.Context())
	require.NoError(t, err)
	end()
}
