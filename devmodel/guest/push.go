package guest

import "github.com/umbra-gpu/umbra/devmodel/guest/push"

// Push collects pushbuffer words. The zero value is ready.
type Push = push.Buffer

// Engine is an engine that copies.
type Engine = push.Engine

// Engines that copy.
const (
	M2MF = push.M2MF
	CE0  = push.CE0
	CE1  = push.CE1
)

// CopyEngines are all of them.
var CopyEngines = push.CopyEngines

// Operations of SEMAPHORED.
const (
	SemAcquire   = push.SemAcquireEqual
	SemRelease   = push.SemRelease
	SemAcquireGE = push.SemAcquireGE
	SemOneWord   = push.SemOneWord
	SemSwitch    = push.SemSwitch
)

// Surface is one side of a copy of a rectangle.
type Surface = push.Surface
