package llvm

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// wantMajor is the version whose IR and C functions the compiler is written for.
const wantMajor = 19

// Functions are those of libLLVM's C interface that a compiler needs, by their names without "LLVM".
type Functions struct {
	handle uintptr

	getVersion func(major, minor, patch *uint32)

	initializeX86TargetInfo, initializeX86Target, initializeX86TargetMC, initializeX86AsmPrinter func()

	contextCreate                      func() uintptr
	contextDispose                     func(context uintptr)
	createMemoryBuffer                 func(data *byte, size uintptr, name string) uintptr
	parseIR                            func(context, buffer uintptr, module, message *uintptr) int32
	disposeModule                      func(module uintptr)
	verifyModule                       func(module uintptr, action int32, message *uintptr) int32
	setTarget                          func(module uintptr, triple string)
	setDataLayout                      func(module, layout uintptr)
	getTargetFromTriple                func(triple string, target, message *uintptr) int32
	createTargetMachine                func(target uintptr, triple, cpu, features string, level, reloc, model int32) uintptr
	createDataLayout                   func(machine uintptr) uintptr
	hostCPU, hostFeatures              func() uintptr
	createOptions                      func() uintptr
	disposeOptions                     func(options uintptr)
	runPasses                          func(module uintptr, passes string, machine, options uintptr) uintptr
	errorMessage                       func(err uintptr) uintptr
	disposeErrorMessage, disposeString func(message uintptr)
	emit                               func(machine, module uintptr, kind int32, message, buffer *uintptr) int32
	bufferStart, bufferSize            func(buffer uintptr) uintptr
	disposeBuffer                      func(buffer uintptr)
}

// Load loads libLLVM from a file, and its own dependencies from a folder, "" if the system has them.
func Load(file, dir string) (*Functions, error) {
	handle, err := loadWithDependencies(file, dir)
	if err != nil {
		return nil, err
	}
	l := &Functions{handle: handle}
	for _, f := range []struct {
		to   any
		name string
	}{
		{&l.getVersion, "GetVersion"},
		{&l.initializeX86TargetInfo, "InitializeX86TargetInfo"}, {&l.initializeX86Target, "InitializeX86Target"},
		{&l.initializeX86TargetMC, "InitializeX86TargetMC"}, {&l.initializeX86AsmPrinter, "InitializeX86AsmPrinter"},
		{&l.contextCreate, "ContextCreate"}, {&l.contextDispose, "ContextDispose"},
		{&l.createMemoryBuffer, "CreateMemoryBufferWithMemoryRangeCopy"}, {&l.parseIR, "ParseIRInContext"},
		{&l.disposeModule, "DisposeModule"}, {&l.verifyModule, "VerifyModule"}, {&l.setTarget, "SetTarget"}, {&l.setDataLayout, "SetModuleDataLayout"},
		{&l.getTargetFromTriple, "GetTargetFromTriple"}, {&l.createTargetMachine, "CreateTargetMachine"},
		{&l.createDataLayout, "CreateTargetDataLayout"}, {&l.hostCPU, "GetHostCPUName"}, {&l.hostFeatures, "GetHostCPUFeatures"},
		{&l.createOptions, "CreatePassBuilderOptions"}, {&l.disposeOptions, "DisposePassBuilderOptions"},
		{&l.runPasses, "RunPasses"}, {&l.errorMessage, "GetErrorMessage"}, {&l.disposeErrorMessage, "DisposeErrorMessage"},
		{&l.disposeString, "DisposeMessage"}, {&l.emit, "TargetMachineEmitToMemoryBuffer"},
		{&l.bufferStart, "GetBufferStart"}, {&l.bufferSize, "GetBufferSize"}, {&l.disposeBuffer, "DisposeMemoryBuffer"},
	} {
		at, err := purego.Dlsym(handle, "LLVM"+f.name)
		if err != nil {
			return nil, fmt.Errorf("%s has no function LLVM%s: %w; want libLLVM %d", file, f.name, err, wantMajor)
		}
		purego.RegisterFunc(f.to, at)
	}
	var major, minor, patch uint32
	l.getVersion(&major, &minor, &patch)
	if major != wantMajor {
		return nil, fmt.Errorf("%s is LLVM %d.%d.%d; want version %d", file, major, minor, patch, wantMajor)
	}
	l.initializeX86TargetInfo()
	l.initializeX86Target()
	l.initializeX86TargetMC()
	l.initializeX86AsmPrinter()
	return l, nil
}
