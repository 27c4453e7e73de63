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

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/serve"
)

// Client asks the server at a control socket.
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

// Status asks what is served.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "status", nil, &s)
}

// Report asks what happened so far.
func (c *Client) Report(ctx context.Context) (r serve.Report, err error) {
	return r, c.do(ctx, http.MethodGet, "report", nil, &r)
}

// Registers asks for the register table of one GPU, or of all ("").
func (c *Client) Registers(ctx context.Context, gpu string) (t serve.PolicyTable, err error) {
	return t, c.do(ctx, http.MethodGet, "registers?gpu="+url.QueryEscape(gpu), nil, &t)
}

// Add adds a virtual GPU.
func (c *Client) Add(ctx context.Context, a AddRequest) (g GPU, err error) {
	return g, c.do(ctx, http.MethodPost, "gpus", a, &g)
}

// Set changes options of a virtual GPU that is there.
func (c *Client) Set(ctx context.Context, name string, s SetRequest) (g GPU, err error) {
	return g, c.do(ctx, http.MethodPatch, "gpus/"+url.PathEscape(name), s, &g)
}

// Show asks for everything about one GPU.
func (c *Client) Show(ctx context.Context, name string) (g Shown, err error) {
	return g, c.do(ctx, http.MethodGet, "gpus/"+url.PathEscape(name), nil, &g)
}

// Schedule asks how the card's time is shared.
func (c *Client) Schedule(ctx context.Context) (s Schedule, err error) {
	return s, c.do(ctx, http.MethodGet, "scheduler", nil, &s)
}

// SetSchedule changes it.
func (c *Client) SetSchedule(ctx context.Context, r SetRequest) (s Schedule, err error) {
	return s, c.do(ctx, http.MethodPatch, "scheduler", r, &s)
}

// Remove removes a virtual GPU and returns what it counted.
func (c *Client) Remove(ctx context.Context, name string, force bool) (r serve.GPUReport, err error) {
	return r, c.do(ctx, http.MethodDelete, fmt.Sprintf("gpus/%s?force=%t", url.PathEscape(name), force), nil, &r)
}

func (c *Client) do(ctx context.Context, method, what string, body, into any) error {
	if c.path == "" {
		return errors.New("which server? Give its control socket: --control PATH, or UMBRA_CONTROL")
	}
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://umbra/v1/"+what, in)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	if resp.StatusCode == http.StatusOK {
		return d.Decode(into)
	}
	e := &Error{Code: resp.StatusCode}
	if err := d.Decode(e); err != nil {
		return fmt.Errorf("control socket %s: %s, and no reason: %w", c.path, resp.Status, err)
	}
	return e
}

// explain says what it means that nobody answers.
func (c *Client) explain(err error) error {
	switch st, statErr := os.Stat(c.path); {
	case statErr == nil && st.Mode()&fs.ModeSocket == 0:
		return Invalid("control socket %s: that is no socket; give the path that umbra serve was given with --control, by --control or the variable UMBRA_CONTROL", c.path)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("control socket %s: no server listens there any more; start one with umbra serve --control %s", c.path, c.path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("control socket %s: there is none; give the path that umbra serve was given with --control, by --control or the variable UMBRA_CONTROL", c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("control socket %s: it belongs to another user, who alone may use it", c.path)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("control socket %s: the answer broke off; it is no control socket (a GPU's?), or its server ended", c.path)
	}
	return fmt.Errorf("control socket %s: %w", c.path, err)
}
