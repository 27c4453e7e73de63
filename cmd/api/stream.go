package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TraceRequest says what to record.
type TraceRequest struct {
	GPU         string        // "" for all
	For         time.Duration // 0 until the client ends it
	Pushbuffers bool          // also the words of pushbuffers
}

func (r *TraceRequest) query() string {
	return url.Values{"gpu": {r.GPU}, "for": {r.For.String()}, "pushbuffers": {strconv.FormatBool(r.Pushbuffers)}}.Encode()
}

func traceRequest(r *http.Request) (t TraceRequest, err error) {
	q := r.URL.Query()
	t.GPU, t.Pushbuffers = q.Get("gpu"), q.Get("pushbuffers") == "true"
	if text := q.Get("for"); text != "" {
		if t.For, err = time.ParseDuration(text); err != nil || t.For < 0 {
			return t, Invalid("for", text, "%q is not a time; write it with a unit: 10s", text)
		}
	}
	return t, nil
}

// streams are the routes whose answer is a file of bytes that goes on.
var streams = []Route{
	{
		Pattern: "GET /v1/trace", About: "Records what guests do, until the client disconnects. docs/tracing.md describes the file.",
		Query: map[string]string{"gpu": "Name of the GPU; all without it.", "for": "How long: 10s.", "pushbuffers": "true also records their words."},
		stream: func(b Backend, r *http.Request, w io.Writer) error {
			t, err := traceRequest(r)
			if err != nil {
				return err
			}
			return b.Trace(r.Context(), t, w)
		},
	},
}

// streamWriter is the answer to a request that goes on. Each write has the time that an answer has.
type streamWriter struct {
	w     http.ResponseWriter
	limit time.Duration
	began bool
}

func (s *streamWriter) Write(p []byte) (int, error) {
	c := http.NewResponseController(s.w)
	if !s.began {
		s.began = true
		s.w.Header().Set("Content-Type", "application/octet-stream")
	}
	if err := c.SetWriteDeadline(time.Now().Add(s.limit)); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	if err == nil {
		err = c.Flush()
	}
	return n, err
}

// answerStream answers a request that goes on.
func answerStream(w http.ResponseWriter, r *http.Request, route *Route, b Backend) {
	// The limit for a request would end the stream, too. This fails for no connection of a server.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	out := &streamWriter{w: w, limit: r.Context().Value(http.ServerContextKey).(*http.Server).WriteTimeout}
	switch err := route.stream(b, r, out); {
	case !out.began:
		answer(w, r, nil, err)
	case err != nil:
		panic(http.ErrAbortHandler) // the client sees that the file is not complete
	}
}

// Trace writes a recording to w until it ends or ctx does.
func (c *Client) Trace(ctx context.Context, r TraceRequest, w io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, "trace?"+r.query(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refusal(resp)
	}
	if _, err = io.Copy(w, resp.Body); errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the server ended the recording before its time; its log may say why")
	}
	return err
}
