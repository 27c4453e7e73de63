package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultPaths are where control sockets are looked for: in the folder of the user's session, and in that of a
// server of the machine. A server that is told no path makes its own at the first.
func DefaultPaths() []string {
	machine := "/run/umbra/control.sock"
	if session := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(session) {
		return []string{filepath.Join(session, "umbra.sock"), machine}
	}
	return []string{machine}
}

// FindControl is the first of DefaultPaths at which a server listens, or "".
func FindControl() string {
	for _, path := range DefaultPaths() {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
		}
		if err == nil || errors.Is(err, fs.ErrPermission) { // which the request explains
			return path
		}
	}
	return ""
}

// Client sends requests to the server at a control socket.
type Client struct {
	path string
	http http.Client
}

// NewClient makes a client. It connects with each request.
func NewClient(path string) *Client {
	return &Client{path: path, http: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}}
}

// Status describes the server, its card and its GPUs.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "status", nil, &s)
}

// Report returns everything that the server counted.
func (c *Client) Report(ctx context.Context) (r Report, err error) {
	return r, c.do(ctx, http.MethodGet, "report", nil, &r)
}

// Registers returns the register table of one GPU, or of all ("").
func (c *Client) Registers(ctx context.Context, gpu string) (t RegisterTable, err error) {
	return t, c.do(ctx, http.MethodGet, "registers?gpu="+url.QueryEscape(gpu), nil, &t)
}

// Add adds a virtual GPU.
func (c *Client) Add(ctx context.Context, a AddRequest) (g GPU, err error) {
	return g, c.do(ctx, http.MethodPost, "gpus", a, &g)
}

// Set changes options of a virtual GPU.
func (c *Client) Set(ctx context.Context, name string, s SetRequest) (g GPU, err error) {
	return g, c.do(ctx, http.MethodPatch, "gpus/"+url.PathEscape(name), s, &g)
}

// Show returns everything about one GPU.
func (c *Client) Show(ctx context.Context, name string) (g GPUReport, err error) {
	return g, c.do(ctx, http.MethodGet, "gpus/"+url.PathEscape(name), nil, &g)
}

// Remove removes a virtual GPU and returns what it counted.
func (c *Client) Remove(ctx context.Context, name string, force bool) (r GPUReport, err error) {
	return r, c.do(ctx, http.MethodDelete, fmt.Sprintf("gpus/%s?force=%t", url.PathEscape(name), force), nil, &r)
}

// Inject plants a fault in a GPU.
func (c *Client) Inject(ctx context.Context, name string, r InjectRequest) (i Injected, err error) {
	return i, c.do(ctx, http.MethodPost, "gpus/"+url.PathEscape(name)+"/inject", r, &i)
}

// Scheduler describes how the card's time is shared.
func (c *Client) Scheduler(ctx context.Context) (s Scheduler, err error) {
	return s, c.do(ctx, http.MethodGet, "scheduler", nil, &s)
}

// SetScheduler changes options of the scheduler.
func (c *Client) SetScheduler(ctx context.Context, r SetRequest) (s Scheduler, err error) {
	return s, c.do(ctx, http.MethodPatch, "scheduler", r, &s)
}

// Save returns the configuration that makes the same server again.
func (c *Client) Save(ctx context.Context) (s Saved, err error) {
	return s, c.do(ctx, http.MethodGet, "config", nil, &s)
}

// Reload reads the configuration file again and applies what changed in it.
func (c *Client) Reload(ctx context.Context) (r Reload, err error) {
	return r, c.do(ctx, http.MethodPost, "reload", nil, &r)
}

func (c *Client) do(ctx context.Context, method, what string, body, into any) error {
	resp, err := c.send(ctx, method, what, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refusal(resp)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// send sends a request.
func (c *Client) send(ctx context.Context, method, what string, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://umbra/v1/"+what, in)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.explain(err)
	}
	return resp, nil
}

// refusal is the error that an answer is.
func (c *Client) refusal(resp *http.Response) error {
	e := &Error{Code: resp.StatusCode}
	if err := json.NewDecoder(resp.Body).Decode(e); err != nil {
		return fmt.Errorf("control socket %s: %s, without a reason: %w", c.path, resp.Status, err)
	}
	return e
}

// explain says why nobody answered. A path that leads to no control socket is
// the caller's mistake, an error of type [Error].
func (c *Client) explain(err error) error {
	const hint = "give the path that umbra serve was started with, in --control or the variable UMBRA_CONTROL"
	switch st, statErr := os.Stat(c.path); {
	case statErr == nil && st.Mode()&fs.ModeSocket == 0:
		return Invalid("--control", c.path, "control socket %s: not a socket; %s", c.path, hint)
	case errors.Is(err, fs.ErrNotExist):
		return Invalid("--control", c.path, "control socket %s: no such file; %s", c.path, hint)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("control socket %s: its server has ended; start one with umbra serve --control %s", c.path, c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("control socket %s: permission denied; use it as the user who started the server, or give others access with control-access.group and .mode (--control-group, --control-mode)", c.path)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("control socket %s: the connection broke before an answer; the server ended, or this is the socket of a GPU", c.path)
	}
	return fmt.Errorf("control socket %s: %w", c.path, err)
}
