package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version is set by the Makefile.
var version string

type versionCmd struct{}

func (versionCmd) Run(out output) error { return writeVersion(out.stdout) }

// versionFlag is umbra --version, which other programs have.
type versionFlag bool

// BeforeReset implements a hook of the flag library.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	app.Exit(exitOK)
	return writeVersion(app.Stdout)
}

func writeVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "umbra %s (%s %s/%s)\n", versionString(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionString is the version that the Makefile set, or the go command recorded.
func versionString() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
