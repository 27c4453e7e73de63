package gpu

import (
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
)

// A Device is one client of the GPU: an address space with buffers and channels.
type (
	Device  = *drm.Device
	Buffer  = *drm.Buffer
	Channel = *drm.Channel
	Ref     = drm.Ref
)

// ref puts a buffer on a submission's validation list.
func ref(b Buffer, valid drm.Domain, write bool) Ref {
	return Ref{Buffer: b, Valid: valid, Write: write}
}

// Env is the machine around the GPU.
type Env struct{ System }

// System is the guest's kernel: its uname -r and its log.
type System interface {
	Release() string
	Mark(proto.MarkArgs) (proto.MarkResult, error)
	Kmsg(proto.KmsgArgs) (proto.KmsgResult, error)
}

// Open opens the first render node.
func (e *Env) Open() (Device, error) {
	node, err := drm.DefaultNode()
	if err != nil {
		return nil, err
	}
	return drm.Open(node)
}
