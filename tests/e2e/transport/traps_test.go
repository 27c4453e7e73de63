package transport

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/traps"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// TestTrapsThroughQEMU: a guest measures its accesses to a card behind each transport of this
// build, all of which arrive; the times are nobody's promise.
func TestTrapsThroughQEMU(t *testing.T) {
	labtest.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	o := traps.Options{Transports: []string{serve.TransportNative}, Rounds: 2, Count: 200, Guest: true}
	if libvfiouser.Built {
		o.Transports = append(o.Transports, serve.TransportLibrary)
	}
	r, err := traps.Measure(ctx, o)
	require.NoError(t, err)
	var seen []string
	for _, f := range r.Figures {
		if f.Way == traps.Guest {
			seen = append(seen, f.Access)
			require.Len(t, f.NS, len(o.Transports))
		}
	}
	require.Equal(t, []string{"read", "32 posted writes and a read, each", "1,000 posted writes and a read, each", "write"}, seen)
	t.Attr("kernel", fmt.Sprintf("%s under %s", r.Machine.Kernel, r.Machine.Accel))
	t.Logf("\n%s", r.Text(o.Transports))
}
