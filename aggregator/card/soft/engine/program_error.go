package engine

import (
	"errors"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// programErrors are the errors that a processor reports. To a driver, what is missing here is an
// instruction that the chip does not have.
var programErrors = [...]gf100.MPError{
	interp.NotImplemented:     {Warp: gf100.MPInvalidOpcode},
	interp.IllegalInstruction: {Warp: gf100.MPInvalidOpcode},
	interp.BadPC:              {Warp: gf100.MPPCOverflow},
	interp.BadRegister:        {Warp: gf100.MPGPROutOfBounds},
	interp.MisalignedRegister: {Warp: gf100.MPMisalignedGPR},
	interp.BadAddress:         {Warp: gf100.MPMemOutOfBounds},
	interp.MisalignedAddress:  {Warp: gf100.MPMisalignedAddr},
	interp.BadConstant:        {Warp: gf100.MPInvalidConst},
	interp.StackOverflow:      {Global: gf100.MPOutOfStackSpace},
	interp.StackMismatch:      {Warp: gf100.MPStackMismatch},
	interp.BadBarrier:         {Warp: gf100.MPInvalidParam},
	interp.Deadlock:           {Global: gf100.MPTimeout},
	interp.Lost:               {Global: gf100.MPTimeout},
}

// programError is the processor's report of what a program did.
func programError(err error) gf100.MPError {
	var f *interp.Fault
	switch {
	case !errors.As(err, &f):
		return programErrors[interp.NotImplemented]
	case f.Cause == interp.BadPC && f.PC%8 != 0:
		return gf100.MPError{Warp: gf100.MPMisalignedPC}
	}
	return programErrors[f.Cause]
}
