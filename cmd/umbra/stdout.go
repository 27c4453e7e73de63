package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"syscall"
)

// stdout is a server's standard output. The server goes on if its reader ends.
type stdout struct {
	w      io.Writer
	json   bool
	log    *slog.Logger
	closed bool
}

// write writes v as a line of JSON, or the text.
func (o *stdout) write(v any, text string) error {
	if o.closed {
		return nil
	}
	var err error
	if o.json {
		err = json.NewEncoder(o.w).Encode(v)
	} else {
		_, err = io.WriteString(o.w, text)
	}
	// A pipe without a reader, and a terminal that was closed.
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) {
		o.closed = true
		o.log.Warn("the standard output has no reader; the server goes on without it", "error", err)
		return nil
	}
	return err
}
