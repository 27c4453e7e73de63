package stand

import (
	"context"
	"time"
)

// Poweroff has the guest shut down in good order and waits until QEMU has ended by
// itself. It returns how long that took by the guest's clock.
func (s *Stand) Poweroff(ctx context.Context) (time.Duration, error) { return s.VM.TimedPoweroff(ctx) }
