package llvm

import (
	"errors"
	"fmt"
)

// Passes are what LLVM runs over a module.
const (
	// Quick saves some of the time of large programs. Neither has instcombine: of some of what it makes, the
	// code generator of LLVM 19 never finds an end.
	Quick = "always-inline,function(sroa,early-cse,simplifycfg)"
	Full  = "always-inline,function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,loop-simplify,lcssa,loop-mssa(licm),gvn,sink,dse,adce,simplifycfg)"
)

// The target: code that stands anywhere and refers to its own constants relative to itself.
const (
	triple         = "x86_64-unknown-linux-gnu"
	relocPIC       = 2
	codeModelSmall = 3

	relocDefault     = 0
	codeModelDefault = 0

	assemblyFile    = 0
	objectFile      = 1
	returnStatus    = 2 // of the verifier: no message on standard error
	codeGenStandard = 2
)

// Compiler compiles modules for a target.
type Compiler struct {
	l       *Functions
	triple  string
	machine uintptr
	layout  uintptr
}

// NewCompiler makes a compiler for this machine's processor.
func (l *Functions) NewCompiler() (*Compiler, error) {
	return l.newCompiler(triple, l.text(l.hostCPU()), l.text(l.hostFeatures()), relocPIC, codeModelSmall)
}

func (l *Functions) newCompiler(triple, cpu, features string, reloc, model int32) (*Compiler, error) {
	var target, message uintptr
	if l.getTargetFromTriple(triple, &target, &message) != 0 {
		return nil, fmt.Errorf("this libLLVM does not know the target %s: %s", triple, l.text(message))
	}
	machine := l.createTargetMachine(target, triple, cpu, features, codeGenStandard, reloc, model)
	if machine == 0 {
		return nil, fmt.Errorf("this libLLVM has no code generator for %s", triple)
	}
	return &Compiler{l: l, triple: triple, machine: machine, layout: l.createDataLayout(machine)}, nil
}

// Compile makes an object file, in the format of ELF, of a module as text.
func (c *Compiler) Compile(ir, passes string) ([]byte, error) { return c.emit(ir, passes, objectFile) }

// Assemble makes the text of the same code.
func (c *Compiler) Assemble(ir, passes string) ([]byte, error) {
	return c.emit(ir, passes, assemblyFile)
}

func (c *Compiler) emit(ir, passes string, kind int32) ([]byte, error) {
	l := c.l
	context := l.contextCreate()
	defer l.contextDispose(context)
	text := append([]byte(ir), 0)
	buffer := l.createMemoryBuffer(&text[0], uintptr(len(ir)), "program")
	var module, message uintptr
	if l.parseIR(context, buffer, &module, &message) != 0 { // it takes the buffer
		return nil, fmt.Errorf("the IR is not valid: %s", l.text(message))
	}
	defer l.disposeModule(module)
	if l.verifyModule(module, returnStatus, &message) != 0 {
		return nil, fmt.Errorf("the IR is not valid: %s", l.text(message))
	}
	l.setTarget(module, c.triple)
	l.setDataLayout(module, c.layout)
	options := l.createOptions()
	defer l.disposeOptions(options)
	if err := l.runPasses(module, passes, c.machine, options); err != 0 {
		m := l.errorMessage(err)
		defer l.disposeErrorMessage(m)
		return nil, fmt.Errorf("passes %q: %s", passes, cString(m))
	}
	var object uintptr
	if l.emit(c.machine, module, kind, &message, &object) != 0 {
		return nil, errors.New("no code: " + l.text(message))
	}
	defer l.disposeBuffer(object)
	return cBytes(l.bufferStart(object), l.bufferSize(object)), nil
}

// text takes a string of LLVM's.
func (l *Functions) text(message uintptr) string {
	s := cString(message)
	if message != 0 {
		l.disposeString(message)
	}
	return s
}
