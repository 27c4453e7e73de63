// Command umbra-jit compiles and runs one guest's programs for the server umbra, which starts it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/cpu"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/process"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "umbra-jit:", err)
		os.Exit(1)
	}
}

// run is given libLLVM and the folder of its own dependencies, and when it is confined, what the kernel lacks for that.
func run(args []string) error {
	const confined = 3
	var err error
	if len(args) > 0 && args[0] == jit.Assemble {
		return assemble(args[1:])
	}
	switch len(args) {
	case confined - 1:
		err = confine(args[0], args[1])
	case confined:
		return serve(args[0], args[1], args[2])
	default:
		err = errors.New("this command is for the server umbra, which starts it")
	}
	return refuse(jit.NewConn(jit.ConnFD), err)
}

// collectAt lets Go's heap, which is small beside that of the library, grow to some 40 MiB before it is collected.
const collectAt = 1000

// serve loads the library, gives up the right to open files, and serves.
func serve(library, dir, missing string) error {
	debug.SetGCPercent(collectAt)
	conn := jit.NewConn(jit.ConnFD)
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return refuse(conn, errors.New("this processor lacks AVX2 or FMA, which machine code for guests' programs needs; set card.compiler off"))
	}
	functions, err := load(library, dir)
	if err != nil {
		return refuse(conn, fmt.Errorf("%w; install libLLVM 19 (Debian: libllvm19), or name its file in card.llvm", err))
	}
	compiler, err := functions.NewCompiler()
	if err != nil {
		return refuse(conn, err)
	}
	programs, err := process.NewPrograms(compiler)
	if err != nil {
		return refuse(conn, err)
	}
	more, listener, err := forbid()
	if err != nil {
		return refuse(conn, err)
	}
	if more != "" {
		missing = more
	}
	if err := conn.Send(&jit.Message{Kind: jit.Hello, A: jit.Version, Body: []byte(missing)}, listener); err != nil {
		return err
	}
	if listener != nil {
		listener.Close()
	}
	return process.Serve(conn, programs)
}

// assemble writes to standard output the assembly of IR from standard input. Its arguments are those of run.
func assemble(args []string) error {
	const maxText = 16 << 20
	switch len(args) {
	case 2:
		return confine(args[0], args[1])
	case 3:
	default:
		return fmt.Errorf("%s with %d arguments: want libLLVM and the folder of its dependencies", jit.Assemble, len(args))
	}
	ir, err := io.ReadAll(io.LimitReader(os.Stdin, maxText+1))
	if err != nil {
		return err
	}
	if len(ir) > maxText {
		return fmt.Errorf("the IR has more than %d bytes: want a shorter program", maxText)
	}
	functions, err := load(args[0], args[1])
	if err != nil {
		return fmt.Errorf("%w; install libLLVM 19 (Debian: libllvm19), or name the library with --llvm", err)
	}
	compiler, err := functions.NewCompiler()
	if err != nil {
		return err
	}
	text, err := compiler.Assemble(string(ir), llvm.Full)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// load loads the library as jit.Config names it.
func load(library, dir string) (*llvm.Functions, error) {
	if library != "" {
		return llvm.Load(library, dir)
	}
	functions, err := llvm.Load(jit.SystemLibrary, "")
	if err == nil || dir == "" {
		return functions, err
	}
	functions, other := llvm.Load(filepath.Join(dir, jit.SystemLibrary), dir)
	if other != nil {
		return nil, fmt.Errorf("%w; %w", err, other)
	}
	return functions, nil
}

// refuse tells the server why this process cannot serve.
func refuse(conn *jit.Conn, err error) error {
	m := jit.Message{Kind: jit.Hello, A: jit.Version, B: 1, Body: []byte(err.Error())}
	return errors.Join(err, conn.Send(&m, nil))
}
