//go:build !libvfiouser

package libvfiouser

import "github.com/umbra-gpu/umbra/vfiouser"

// Built reports whether the binding is in this program.
const Built = false

// New fails with ErrNotBuilt.
func New(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error) { return nil, ErrNotBuilt }
