package llvm

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// PTX 7.0 for compute capability 8.0: drivers from 2020 on load it for that and all later cards.
const (
	gpuTriple   = "nvptx64-nvidia-cuda"
	gpuModel    = "sm_80"
	gpuFeatures = "+ptx70"
)

// NewPTXCompiler makes a compiler whose Assemble makes PTX.
func (l *Functions) NewPTXCompiler() (*Compiler, error) {
	for _, part := range []string{"TargetInfo", "Target", "TargetMC", "AsmPrinter"} {
		var initialize func()
		at, err := purego.Dlsym(l.handle, "LLVMInitializeNVPTX"+part)
		if err != nil {
			return nil, fmt.Errorf("this libLLVM makes no PTX: %w", err)
		}
		purego.RegisterFunc(&initialize, at)
		initialize()
	}
	return l.newCompiler(gpuTriple, gpuModel, gpuFeatures, relocDefault, codeModelDefault)
}
