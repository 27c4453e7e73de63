package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Backend is the server behind the API. Its errors are of type [Error], or
// failures of the server itself.
type Backend interface {
	Status() (Status, error)
	Report() (Report, error)
	Add(AddRequest) (GPU, error)
	Show(name string) (GPUReport, error)
	Set(name string, s SetRequest) (GPU, error)
	Remove(name string, force bool) (GPUReport, error)
	Inject(name string, r InjectRequest) (Injected, error)
	Scheduler() (Scheduler, error)
	SetScheduler(s SetRequest) (Scheduler, error)
	Reload() (Reload, error)
	Save() (Saved, error)
	// Trace records, and writes to w until ctx ends. Before it wrote anything its error is an answer.
	Trace(ctx context.Context, r TraceRequest, w io.Writer) error
	Registers(gpu string) (RegisterTable, error) // of one GPU, or the sum of all ("")
}

// Error is the answer to a request that failed.
type Error struct {
	Code    int     `json:"-"` // HTTP's
	Message string  `json:"error"`
	Causes  []Cause `json:"causes"` // each thing that is wrong; none if the server failed
}

// Cause is one thing that is wrong.
type Cause struct {
	Thing   string `json:"thing"`             // an option, a GPU or a part of the request, as the user wrote it
	Value   string `json:"value,omitempty"`   // that it has
	Problem string `json:"problem,omitempty"` // with the value, unless the remedy says it
	Remedy  string `json:"remedy,omitempty"`  // what to do, or what would be accepted
}

// NewCause makes a Cause. The reason is a problem, and after a semicolon a remedy; or the bounds of the value alone.
func NewCause(thing, value, reason string) Cause {
	if quoted, err := strconv.QuotedPrefix(reason); err == nil && value == "" {
		value, _ = strconv.Unquote(quoted) // a quoted prefix can be
	}
	if strings.HasPrefix(reason, "must be ") {
		return Cause{Thing: thing, Value: value, Remedy: reason}
	}
	problem, remedy, _ := strings.Cut(reason, "; ")
	return Cause{thing, value, problem, remedy}
}

func (e *Error) Error() string { return e.Message }

// NotFound reports that there is no such GPU or request. The text is a reason, as [NewCause] takes it.
func NotFound(thing, value, format string, args ...any) error {
	return newError(http.StatusNotFound, thing, value, format, args...)
}

// Conflict reports that the server's current state does not allow the request.
func Conflict(thing, value, format string, args ...any) error {
	return newError(http.StatusConflict, thing, value, format, args...)
}

// Invalid reports that the request itself is wrong.
func Invalid(thing, value, format string, args ...any) error {
	return newError(http.StatusBadRequest, thing, value, format, args...)
}

func newError(code int, thing, value, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &Error{code, text, []Cause{NewCause(thing, value, text)}}
}
