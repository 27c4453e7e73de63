package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// compileFlags show what the compiler of guests' programs makes of code. A compiled program is one for a size of blocks.
type compileFlags struct {
	IR    bool     `name:"ir" xor:"form" help:"Print the LLVM IR that the compiler of programs makes of the code."`
	Asm   bool     `xor:"form" help:"Print the assembly of the machine code for this processor. umbra-jit makes it: beside this program or in $PATH."`
	Block []uint32 `placeholder:"X,Y,Z" default:"256" help:"Threads in each dimension of a block, for --ir and --asm."`
	LLVM  string   `name:"llvm" placeholder:"FILE" env:"UMBRA_LLVM" help:"The library libLLVM.so.19.1 for --asm, with its own dependencies beside it where the system lacks them. default: that of the system, or else the one that umbra lab run has fetched."`
}

// Sizes of a launch for which code is compiled that was given without one: the most of each.
const (
	anyGrid      = 1 << 16
	anyRegisters = 63
	anyBarriers  = 16
	anyShared    = 48 << 10
	anyLocal     = 512 << 10
)

// compiled writes the IR or the assembly of code.
func (c *compileFlags) compiled(code []byte, to io.Writer) error {
	block := [3]uint32{1, 1, 1}
	threads := uint64(1)
	for i, n := range c.Block {
		if i == len(block) || n == 0 || n > 1024 || threads*uint64(n) > 1024 {
			return &config.Error{Where: "--block", Value: strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Block), " ", ","), "[]"), Reason: "want one to three numbers of at least 1 with a product of at most 1024"}
		}
		block[i], threads = n, threads*uint64(n)
	}
	l := &interp.Launch{
		Program: &interp.Program{Memory: codeMemory(code)}, Grid: [3]uint32{anyGrid, anyGrid, anyGrid}, Block: block,
		Registers: anyRegisters, Barriers: anyBarriers, Shared: anyShared, LocalPos: anyLocal,
	}
	o := fermi.Options(l)
	o.Constant = nil
	p, err := compile.Compile(&fermi.FrontEnd{Launch: l}, o)
	if err != nil {
		return fmt.Errorf("the compiler refuses the program: %w", err)
	}
	text, comment := []byte(p.IR), ";"
	if c.Asm {
		comment = "#"
		if text, err = c.assembly(text); err != nil {
			return err
		}
	}
	for _, form := range slices.Sorted(maps.Keys(p.Missing)) {
		fmt.Fprintf(to, "%s left to the interpreter: %s, in %d places\n", comment, form, p.Missing[form])
	}
	_, err = to.Write(text)
	return err
}

// assembly lets umbra-jit compile IR: this program never loads libLLVM.
func (c *compileFlags) assembly(ir []byte) ([]byte, error) {
	program, library, dir := serve.FindCompiler(), "", fetch.CachedLLVM()
	if program == "" {
		return nil, errors.New("there is no umbra-jit beside umbra or in $PATH; install umbra-jit beside umbra, and libLLVM 19 (Debian: libllvm19), or name the library with --llvm")
	}
	if c.LLVM != "" {
		var err error
		if library, err = filepath.Abs(c.LLVM); err != nil {
			return nil, err
		}
		dir = filepath.Dir(library)
	}
	var text, said bytes.Buffer
	cmd := exec.Command(program, jit.Assemble, library, dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(ir), &text, &said
	if err := cmd.Run(); err != nil {
		if line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n"); line != "" {
			err = errors.New(strings.TrimPrefix(line, "umbra-jit: "))
		}
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return append(bytes.TrimRight(text.Bytes(), "\n"), '\n'), nil
}

// codeMemory is memory that has code alone, from address zero. It implements interp.Memory.
type codeMemory []byte

var errNoCode = errors.New("outside of the code")

func (m codeMemory) Load(addr uint64, to []byte) error {
	if addr > uint64(len(m)) || uint64(len(to)) > uint64(len(m))-addr {
		return errNoCode
	}
	copy(to, m[addr:])
	return nil
}

func (m codeMemory) Store(uint64, []byte) error { return errNoCode }

func (m codeMemory) Update(uint64, int, func(uint64) uint64) (uint64, error) { return 0, errNoCode }
