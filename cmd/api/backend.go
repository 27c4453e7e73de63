package api

import (
	"fmt"
	"net/http"
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
	Scheduler() (Scheduler, error)
	SetScheduler(s SetRequest) (Scheduler, error)
	Reload() (Reload, error)
	Registers(gpu string) (RegisterTable, error) // of one GPU, or the sum of all ("")
}

// Error is the answer to a request that failed.
type Error struct {
	Code    int    `json:"-"` // HTTP's
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// NotFound reports that there is no such GPU or request.
func NotFound(format string, args ...any) error { return newError(http.StatusNotFound, format, args) }

// Conflict reports that the server's current state does not allow the request.
func Conflict(format string, args ...any) error { return newError(http.StatusConflict, format, args) }

// Invalid reports that the request itself is wrong.
func Invalid(format string, args ...any) error { return newError(http.StatusBadRequest, format, args) }

func newError(code int, format string, args []any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
