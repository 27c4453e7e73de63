package gpu

import (
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/tests/guests/push"
)

// Subchannels. Those of the objects 0 to 3 and 7 are as in Mesa's nvc0.
const (
	subchanM2MF  push.Subchan = 2
	subchanEmpty push.Subchan = 6 // nothing is ever bound here
)

var (
	object2D      = push.Object{Class: push.ClassTwoD, Unit: push.UnitGR, Subchan: 3}
	object3D      = push.Object{Class: push.Class3D, Unit: push.UnitGR, Subchan: 0}
	objectCompute = push.Object{Class: push.ClassCompute, Unit: push.UnitGR, Subchan: 1}
	objectSW      = push.Object{Class: push.ClassSW, Unit: push.UnitSW, Subchan: 7}
)

// engineOf finds an engine by name.
func engineOf(name string) (push.Engine, error) {
	for _, e := range push.CopyEngines {
		if strings.EqualFold(e.String(), name) {
			return e, nil
		}
	}
	return 0, fmt.Errorf("engine %q: want m2mf, ce0 or ce1", name)
}
