// Command umbra-jit compiles and runs one guest's programs for the server umbra, which starts it.
package main

import (
	"fmt"
	"os"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/process"
)

// socketFD is the connection to the server.
const socketFD = 3

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "umbra-jit:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	conn := jit.NewConn(socketFD)
	hello := jit.Message{Kind: jit.Hello, A: jit.Version}
	compiler, err := load(args)
	if err != nil {
		hello.B, hello.Body = 1, []byte(err.Error())
	}
	if sent := conn.Send(&hello, nil); sent != nil {
		return fmt.Errorf("this command is for the server umbra, which starts it: %w", sent)
	}
	if err != nil {
		return err
	}
	return process.Serve(conn, compiler)
}

// systemLibrary is how the system's loader knows libLLVM.
const systemLibrary = "libLLVM.so.19.1"

// load loads the library that the arguments name.
func load(args []string) (*llvm.Compiler, error) {
	file, dir := systemLibrary, ""
	if len(args) > 0 {
		file = args[0]
	}
	if len(args) > 1 {
		dir = args[1]
	}
	library, err := llvm.Load(file, dir)
	if err != nil {
		return nil, err
	}
	return library.NewCompiler()
}
