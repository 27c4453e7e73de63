package vfiouser_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// migDevice notes the arcs that it takes, and fails on some.
type migDevice struct {
	*memDevice
	flags uint64
	arcs  [][2]uint32
	fail  map[[2]uint32]error
}

func newMigDevice(t testing.TB) *migDevice {
	return &migDevice{memDevice: newDevice(t), flags: wire.MigFlagStopCopy | wire.MigFlagPreCopy}
}

func (d *migDevice) MigrationFlags() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flags
}

func (d *migDevice) MigrateTo(from, to uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fail[[2]uint32{from, to}]; err != nil {
		return err
	}
	d.arcs = append(d.arcs, [2]uint32{from, to})
	return nil
}

func (d *migDevice) ReadMigration(p []byte) (int, error) { return len(p) / 2, nil }
func (d *migDevice) WriteMigration([]byte) error         { return nil }

// The conformance suite has the other errors.
func TestFeatureErrors(t *testing.T) {
	c := newRig(t, newMigDevice(t), vfiouser.Options{}).dial(nil)
	const G, S, P = wire.FeatureGet, wire.FeatureSet, wire.FeatureProbe
	report := func(addr, size uint64) []byte {
		return le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, addr), size), 4096)
	}
	for _, tt := range []struct {
		name  string
		flags uint32
		data  []byte
		err   error
	}{
		{"probe without operation", P | wire.FeatureMigration, nil, nil},
		{"probe set of migration", P | S | wire.FeatureMigration, nil, syscall.EINVAL},
		{"unknown flag", G | 0x80000 | wire.FeatureMigration, nil, syscall.EINVAL},
		{"state short", S | wire.FeatureMigDeviceState, make([]byte, 7), syscall.EINVAL},
		{"log start short", S | wire.FeatureDMALoggingStart, make([]byte, 15), syscall.EINVAL},
		{"log ranges missing", S | wire.FeatureDMALoggingStart, le.AppendUint64(le.AppendUint64(nil, 4096), 2), syscall.EINVAL},
		{"report too long", G | wire.FeatureDMALoggingReport, report(0, 8<<40), syscall.E2BIG},
		{"report past the end", G | wire.FeatureDMALoggingReport, report(1<<64-4096, 8192), syscall.EINVAL},
	} {
		_, err := c.Feature(tt.flags, 0, tt.data)
		require.Equal(t, tt.err, err, tt.name)
	}
	require.EqualValues(t, 4096, c.Capabilities().Migration.PgSize)
}

// TestMigrationArcs: the device sees the arcs that VFIO prescribes between two states, or none.
func TestMigrationArcs(t *testing.T) {
	const E, S, R, C, I, P = wire.MigError, wire.MigStop, wire.MigRunning, wire.MigStopCopy, wire.MigResuming, wire.MigPreCopy
	way := map[[2]uint32][]uint32{
		{R, S}: {S}, {R, C}: {S, C}, {R, I}: {S, I}, {R, P}: {P},
		{S, R}: {R}, {S, C}: {C}, {S, I}: {I}, {S, P}: {R, P},
		{C, S}: {S}, {C, R}: {S, R}, {C, I}: {S, I},
		{I, S}: {S}, {I, R}: {S, R}, {I, C}: {S, C}, {I, P}: {S, R, P},
		{P, C}: {C}, {P, R}: {R}, {P, S}: {R, S}, {P, I}: {R, S, I},
	}
	d := newMigDevice(t)
	r := newRig(t, d, vfiouser.Options{})
	for _, from := range []uint32{S, R, C, I, P} {
		for _, to := range []uint32{S, R, C, I, P, E, wire.MigRunningP2P, wire.MigPreCopyP2P, ^uint32(0)} {
			c := r.dial(nil)
			require.NoError(t, c.SetMigrationState(from))
			d.locked(func() { d.arcs = nil })
			err := c.SetMigrationState(to)
			got, gerr := c.MigrationState()
			require.NoError(t, gerr)
			steps, reached := way[[2]uint32{from, to}], to
			if steps == nil && from != to {
				require.Equal(t, syscall.EINVAL, err, "%d to %d", from, to)
				reached = from
			} else {
				require.NoError(t, err, "%d to %d", from, to)
			}
			require.Equal(t, reached, got, "%d to %d", from, to)
			var want [][2]uint32
			for at := from; len(steps) > 0; at, steps = steps[0], steps[1:] {
				want = append(want, [2]uint32{at, steps[0]})
			}
			d.locked(func() { require.Equal(t, want, d.arcs, "%d to %d", from, to) })
			c.Close()
		}
	}
}

// TestStoppedDeviceIsOnlyRead: a stopped device is only read. The conformance suite saves and restores
// its state.
func TestStoppedDeviceIsOnlyRead(t *testing.T) {
	c := newRig(t, newMigDevice(t), vfiouser.Options{}).dial(nil)
	require.NoError(t, c.SetMigrationState(wire.MigStopCopy))
	_, err := c.Info()
	require.Equal(t, syscall.EINVAL, err)
	_, err = c.Read32(0, 0)
	require.Equal(t, syscall.EINVAL, err)
	require.Equal(t, syscall.EINVAL, c.Reset())
	require.Equal(t, syscall.EINVAL, c.WriteMigration([]byte{1}))
	_, err = c.Call(wire.MigDataRead, wire.Append(nil, wire.MigData{Argsz: 8, Size: 8}))
	require.Equal(t, syscall.EINVAL, err, "argsz has no room")
	require.NoError(t, c.SetMigrationState(wire.MigResuming))
	_, err = c.Call(wire.MigDataWrite, append(wire.Append(nil, wire.MigData{Argsz: 24, Size: 8}), 1, 2, 3))
	require.Equal(t, syscall.EINVAL, err)
	require.NoError(t, c.SetMigrationState(wire.MigStop))
	_, err = c.Read32(0, 0)
	require.NoError(t, err, "STOP lets regions be read")
}

func TestMigrationFailures(t *testing.T) {
	d := newMigDevice(t)
	d.fail = map[[2]uint32]error{
		{wire.MigStop, wire.MigStopCopy}: syscall.ENOMEM,
		{wire.MigStop, wire.MigResuming}: fmt.Errorf("gone: %w", vfiouser.ErrMigrationLost),
	}
	r := newRig(t, d, vfiouser.Options{})
	c := r.dial(nil)
	stateIs := func(want uint32) {
		t.Helper()
		got, err := c.MigrationState()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, syscall.ENOMEM, c.SetMigrationState(wire.MigStopCopy))
	stateIs(wire.MigStop) // the state reached
	require.Equal(t, syscall.EIO, c.SetMigrationState(wire.MigResuming))
	stateIs(wire.MigError)
	require.Equal(t, syscall.EINVAL, c.SetMigrationState(wire.MigRunning))
	require.NoError(t, c.Reset(), "reset leaves ERROR")
	stateIs(wire.MigRunning)

	// The next client finds a running device.
	require.NoError(t, c.SetMigrationState(wire.MigStop))
	d.locked(func() { d.arcs = nil })
	c.Close()
	c = r.dial(nil)
	d.locked(func() {
		require.Equal(t, [][2]uint32{{wire.MigStop, wire.MigRunning}}, d.arcs)
		d.flags = wire.MigFlagStopCopy
	})
	require.Equal(t, syscall.EINVAL, c.SetMigrationState(wire.MigPreCopy), "not offered")
}

// TestDirtyReports: any report, of any range and page size, holds each page that was written since
// it was last reported, and no page that was not. The log's page size is what START's reply says.
func TestDirtyReports(t *testing.T) {
	const base, size = 0x100000, 64 << 10
	r := newRig(t, newMigDevice(t), vfiouser.Options{})
	ram := alloc(t, 4*size)
	rapid.Check(t, func(t *rapid.T) {
		c, err := client.Dial(r.path, nil)
		require.NoError(t, err)
		defer c.Close()
		mem := r.dev.Host().Memory()
		added := make(chan vfiouser.MemoryChange, 6)
		defer mem.Watch(func(ch vfiouser.MemoryChange) { added <- ch })()
		var maps [3]vfiouser.MemoryChange
		for i := range uint64(3) { // two that touch, a hole, a third
			at := base + i*size
			if i == 2 {
				at += size
			}
			require.NoError(t, c.Map(at, ram, i*size, size, client.ReadWrite))
			maps[i] = <-added
		}
		hint := rapid.SampledFrom([]uint64{1, 2048, 4096, 5000, 8192}).Draw(t, "hint")
		b, err := c.Feature(wire.FeatureSet|wire.FeatureDMALoggingStart, 0, le.AppendUint64(le.AppendUint64(nil, hint), 0))
		require.NoError(t, err)
		unit := le.Uint64(b) // of the log
		require.Equal(t, map[uint64]uint64{1: 4096, 2048: 4096, 4096: 4096, 5000: 8192, 8192: 8192}[hint], unit)

		dirty := map[uint64]bool{} // log pages, by address
		mapped := func(at uint64) bool { return at >= base && at < base+2*size || at >= base+3*size && at < base+4*size }
		for range rapid.IntRange(20, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "access") {
				at, n := base+rapid.Uint64Range(0, 4*size-1).Draw(t, "at"), rapid.SampledFrom([]uint64{0, 1, 2, 0x3000}).Draw(t, "bytes")
				how := rapid.SampledFrom([]string{"read", "write", "own write"}).Draw(t, "how")
				if m := maps[rapid.IntRange(0, 2).Draw(t, "map")]; how == "own write" {
					off := (at - base) % (size - n)
					at = m.Addr + off
					m.Wrote(off, n)
				} else {
					_ = mem.Copy(at, make([]byte, n), how == "write")
				}
				for ; how != "read" && n > 0 && mapped(at); at, n = at+1, n-1 { // up to the first hole
					dirty[at&^(unit-1)] = true
				}
				continue
			}
			first := base + 512*rapid.Uint64Range(0, 4*size/512-1).Draw(t, "first")
			n := 512 * rapid.Uint64Range(1, (base+4*size-first)/512).Draw(t, "n")
			pageSz := rapid.SampledFrom([]uint64{512, 2048, 4096, 16384}).Draw(t, "pageSz")
			b, err := c.Feature(wire.FeatureGet|wire.FeatureDMALoggingReport, 1<<20, le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, first), n), pageSz))
			want := make([]byte, (n+64*pageSz-1)/(64*pageSz)*8)
			any := false
			for at := first; at < first+n; at += 512 {
				any = any || mapped(at)
				if dirty[at&^(unit-1)] && mapped(at) {
					bit := (at - first) / pageSz
					want[bit/8] |= 1 << (bit % 8)
				}
			}
			if !any {
				require.Equal(t, syscall.ENOENT, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want, b[24:])
			for page := range dirty {
				if page >= first && page+unit <= first+n {
					delete(dirty, page)
				}
			}
		}
	})
}
