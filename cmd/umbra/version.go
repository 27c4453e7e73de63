package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the Makefile.
var version string

type versionCmd struct{}

func (versionCmd) Run(out output) error {
	_, err := fmt.Fprintf(out.stdout, "umbra %s (%s %s/%s)\n", versionString(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
