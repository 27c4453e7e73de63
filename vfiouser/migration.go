package vfiouser

import (
	"errors"
	"slices"
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// ErrMigrationLost, in an error of Migrator.MigrateTo, means that the device's state is
// lost. The device is then in state ERROR until it is reset.
var ErrMigrationLost = errors.New("vfiouser: device state lost")

var migState = [wire.NumMigStates]state{
	wire.MigError:    stateError,
	wire.MigStop:     stateStop,
	wire.MigRunning:  stateRunning,
	wire.MigStopCopy: stateStopCopy,
	wire.MigResuming: stateResuming,
	wire.MigPreCopy:  statePreCopy,
}

func (s state) migration() uint32 {
	for m, st := range migState {
		if st == s {
			return uint32(m)
		}
	}
	return wire.MigError
}

// migNext is the first arc on the way from one state to another, 0 where there is none. The
// ways avoid saving states in their middle; the states for peer-to-peer are not used.
var migNext = [wire.NumMigStates][wire.NumMigStates]uint32{
	wire.MigStop: {
		wire.MigRunning:  wire.MigRunning,
		wire.MigStopCopy: wire.MigStopCopy,
		wire.MigResuming: wire.MigResuming,
		wire.MigPreCopy:  wire.MigRunning,
	},
	wire.MigRunning: {
		wire.MigStop:     wire.MigStop,
		wire.MigStopCopy: wire.MigStop,
		wire.MigResuming: wire.MigStop,
		wire.MigPreCopy:  wire.MigPreCopy,
	},
	wire.MigStopCopy: {
		wire.MigStop:     wire.MigStop,
		wire.MigRunning:  wire.MigStop,
		wire.MigResuming: wire.MigStop,
	},
	wire.MigResuming: {
		wire.MigStop:     wire.MigStop,
		wire.MigRunning:  wire.MigStop,
		wire.MigStopCopy: wire.MigStop,
		wire.MigPreCopy:  wire.MigStop,
	},
	wire.MigPreCopy: {
		wire.MigStopCopy: wire.MigStopCopy,
		wire.MigRunning:  wire.MigRunning,
		wire.MigStop:     wire.MigRunning,
		wire.MigResuming: wire.MigRunning,
	},
}

// migrateTo walks the device to a state, arc by arc. It stops where an arc fails.
func (c *conn) migrateTo(to uint32) syscall.Errno {
	if to >= wire.NumMigStates || to == wire.MigPreCopy && c.migrator.MigrationFlags()&wire.MigFlagPreCopy == 0 {
		return syscall.EINVAL
	}
	for from := c.state.migration(); from != to; from = c.state.migration() {
		next := migNext[from][to]
		if next == wire.MigError {
			return syscall.EINVAL
		}
		if err := c.migrator.MigrateTo(from, next); err != nil {
			if errors.Is(err, ErrMigrationLost) {
				c.state = stateError
			}
			return errnoOf(err)
		}
		c.state = migState[next]
	}
	return 0
}

// leaveMigration brings the device back to RUNNING for the next client, by a reset if need be.
func (c *conn) leaveMigration() {
	if c.migrator == nil || c.state == stateRunning {
		return
	}
	if c.state == stateError || c.migrateTo(wire.MigRunning) != 0 {
		_ = c.dev.Reset()
	}
}

type feature struct {
	num        uint32
	ops        uint32 // FeatureGet, FeatureSet
	minPayload int    // bytes after the fixed part, for the operation itself
	handle     func(c *conn, f wire.Feature, data []byte) syscall.Errno
}

// features are all offered together, to a device that is a Migrator, and none else.
var features = [...]feature{
	{wire.FeatureMigration, wire.FeatureGet, 0, (*conn).featureMigration},
	{wire.FeatureMigDeviceState, wire.FeatureGet | wire.FeatureSet, 0, (*conn).featureDeviceState},
	{wire.FeatureDMALoggingStart, wire.FeatureSet, 16, (*conn).featureLogStart},
	{wire.FeatureDMALoggingStop, wire.FeatureSet, 0, (*conn).featureLogStop},
	{wire.FeatureDMALoggingReport, wire.FeatureGet, 24, (*conn).featureLogReport},
}

func (c *conn) deviceFeature(rq *request) syscall.Errno {
	f := wire.Parse[wire.Feature](rq.payload)
	data := rq.payload[wire.FeatureSize:]
	row := c.feature(f.Flags & wire.FeatureMask)
	ops := f.Flags & (wire.FeatureGet | wire.FeatureSet)
	switch {
	case row == nil, f.Argsz < wire.FeatureSize,
		f.Flags&^(wire.FeatureMask|wire.FeatureGet|wire.FeatureSet|wire.FeatureProbe) != 0,
		ops&^row.ops != 0:
		return syscall.EINVAL
	case f.Flags&wire.FeatureProbe != 0:
		c.featureEcho(f, data)
		return 0
	case !oneBit(ops), len(data) < row.minPayload:
		return syscall.EINVAL
	}
	errno := row.handle(c, f, data)
	if errno == 0 && ops == wire.FeatureSet {
		c.featureEcho(f, data)
	}
	return errno
}

// featureEcho starts the reply to a SET or a PROBE: the request's payload, as far as argsz allows.
func (c *conn) featureEcho(f wire.Feature, data []byte) {
	room := f.Argsz
	if b := c.featureBody(f, len(data)); b != nil {
		copy(b, data)
		le.PutUint32(c.out[c.mark+wire.HeaderSize:], room) // as sent
	}
}

func (c *conn) feature(num uint32) *feature {
	if c.migrator == nil {
		return nil
	}
	if i := slices.IndexFunc(features[:], func(f feature) bool { return f.num == num }); i >= 0 {
		return &features[i]
	}
	return nil
}

// featureBody starts the reply to a GET with n bytes of data. If the client's argsz has no
// room, it answers with the needed size and no data.
func (c *conn) featureBody(f wire.Feature, n int) []byte {
	room := f.Argsz
	f.Argsz = uint32(wire.FeatureSize + n)
	if room < f.Argsz {
		wire.Append(c.body(wire.FeatureSize)[:0], f)
		return nil
	}
	b := c.body(wire.FeatureSize + n)
	wire.Append(b[:0], f)
	return b[wire.FeatureSize:]
}

func (c *conn) featureMigration(f wire.Feature, _ []byte) syscall.Errno {
	flags := c.migrator.MigrationFlags() &^ wire.MigFlagP2P
	if b := c.featureBody(f, 8); b != nil {
		le.PutUint64(b, flags)
	}
	return 0
}

func (c *conn) featureDeviceState(f wire.Feature, data []byte) syscall.Errno {
	if f.Flags&wire.FeatureSet != 0 {
		if len(data) < 8 {
			return syscall.EINVAL
		}
		return c.migrateTo(le.Uint32(data))
	}
	if b := c.featureBody(f, 8); b != nil {
		le.PutUint32(b, c.state.migration())
	}
	return 0
}

// featureLogStart ignores the ranges and logs everything. The page size is a hint: the reply
// carries the size that the log uses.
func (c *conn) featureLogStart(_ wire.Feature, data []byte) syscall.Errno {
	hint, n := le.Uint64(data), uint64(le.Uint32(data[8:]))
	if hint == 0 || uint64(len(data)) < 16+n*16 {
		return syscall.EINVAL
	}
	pageSz := logPageSize(hint)
	if err := c.mem.startLog(pageSz); err != nil {
		return errnoOf(err)
	}
	le.PutUint64(data, pageSz) // data is echoed
	return 0
}

func (c *conn) featureLogStop(wire.Feature, []byte) syscall.Errno {
	c.mem.stopLog()
	return 0
}

func (c *conn) featureLogReport(f wire.Feature, data []byte) syscall.Errno {
	addr, size, pageSz := le.Uint64(data), le.Uint64(data[8:]), le.Uint64(data[16:])
	if errno := c.checkBitmap(size, pageSz); errno != 0 {
		return errno
	}
	if addr+(size-1) < addr {
		return syscall.EINVAL
	}
	if err := c.mem.canReport(addr, size); err != nil {
		return errnoOf(err)
	}
	b := c.featureBody(f, 24+int(bitmapBytes(size, pageSz)))
	if b != nil {
		copy(b, data[:24])
		c.mem.reportLog(addr, size, pageSz, b[24:])
	}
	return 0
}

func (c *conn) migDataRead(rq *request) syscall.Errno {
	d := wire.Parse[wire.MigData](rq.payload)
	switch {
	case c.migrator == nil,
		c.state&(stateStopCopy|statePreCopy) == 0,
		d.Size > c.srv.opts.MaxDataXfer,
		d.Size > c.client.maxDataXfer,
		uint64(d.Argsz) < uint64(d.Size)+wire.MigDataSize:
		return syscall.EINVAL
	}
	b := c.body(wire.MigDataSize + int(d.Size))
	n, err := c.migrator.ReadMigration(b[wire.MigDataSize:])
	if err != nil {
		return errnoOf(err)
	}
	if n < 0 || n > int(d.Size) {
		return syscall.EIO
	}
	c.out = c.out[:c.mark+wire.HeaderSize+wire.MigDataSize+n]
	wire.Append(b[:0], wire.MigData{Argsz: uint32(wire.MigDataSize + n), Size: uint32(n)})
	return 0
}

func (c *conn) migDataWrite(rq *request) syscall.Errno {
	d := wire.Parse[wire.MigData](rq.payload)
	data := rq.payload[wire.MigDataSize:]
	switch {
	case c.migrator == nil,
		c.state != stateResuming,
		uint64(d.Argsz) < uint64(d.Size)+wire.MigDataSize,
		uint64(len(data)) != uint64(d.Size):
		return syscall.EINVAL
	}
	return errnoOf(c.migrator.WriteMigration(data))
}
