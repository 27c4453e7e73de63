package vfiouser

import (
	"encoding/binary"
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

var le = binary.LittleEndian

// state is one bit per state of a connection: before the version is agreed, then the device's
// migration state.
type state uint16

const (
	stateNew state = 1 << iota
	stateRunning
	statePreCopy
	stateStop
	stateStopCopy
	stateResuming
	stateError

	// stateLive are the states in which the client sets the device up and uses it.
	stateLive = stateRunning | statePreCopy | stateResuming | stateError
	// stateStopped are those in which the device does not run and is only read.
	stateStopped = stateStop | stateStopCopy
)

// command is one row of the command table. A message is held against its row before its
// handler runs; a message that does not fit is answered with EINVAL.
type command struct {
	minPayload int // bytes after the header
	maxFDs     int
	states     state // in which the command is served
	handle     handler
}

// handler serves one command. It puts the reply's payload where conn.body says; without a call
// of body the reply is a bare header.
type handler func(c *conn, rq *request) syscall.Errno

// commands are the commands of a client. DMA_READ and DMA_WRITE go the other way; DIRTY_PAGES
// is no longer specified.
var commands = [wire.NumCommands]command{
	wire.Version:             {wire.VersionSize, 0, stateNew, (*conn).version},
	wire.DMAMap:              {wire.DMAMapSize, 1, stateLive, (*conn).dmaMap},
	wire.DMAUnmap:            {wire.DMAUnmapSize, 0, stateLive, (*conn).dmaUnmap},
	wire.DeviceGetInfo:       {wire.DeviceInfoSize, 0, stateLive, (*conn).deviceInfo},
	wire.DeviceGetRegionInfo: {wire.RegionInfoSize, 0, stateLive, (*conn).regionInfo},
	wire.DeviceGetRegionIO:   {wire.RegionIOSize, 0, stateLive, (*conn).regionIOFDs},
	wire.DeviceGetIRQInfo:    {wire.IRQInfoSize, 0, stateLive, (*conn).irqInfo},
	wire.DeviceSetIRQs:       {wire.IRQSetSize, maxMsgFDs, stateLive, (*conn).setIRQs},
	wire.RegionRead:          {wire.RegionAccessSize, 0, stateLive | stateStop, (*conn).regionRead},
	wire.RegionWrite:         {wire.RegionAccessSize, 0, stateLive | stateStop, (*conn).regionWrite},
	wire.DeviceReset:         {0, 0, stateLive, (*conn).reset},
	wire.RegionWriteMulti:    {wire.WriteMultiSize, 0, stateLive, (*conn).regionWriteMulti},
	wire.DeviceFeature:       {wire.FeatureSize, 0, stateLive | stateStopped, (*conn).deviceFeature},
	wire.MigDataRead:         {wire.MigDataSize, 0, stateLive | stateStopped, (*conn).migDataRead},
	wire.MigDataWrite:        {wire.MigDataSize, 0, stateLive, (*conn).migDataWrite},
}

// rowOf returns a command's row, or nil.
func rowOf(c wire.Command) *command {
	if int(c) >= len(commands) || commands[c].handle == nil {
		return nil
	}
	return &commands[c]
}

// request is a client's message on its way through a handler. The payload lies in the receive
// buffer; descriptors that the handler does not take are closed after it.
type request struct {
	hdr     wire.Header
	payload []byte
	fds     []int
	cut     bool // descriptors were lost on the way in
}

func (rq *request) take(i int) int {
	fd := rq.fds[i]
	rq.fds[i] = -1
	return fd
}

// check holds a message against its row.
func (row *command) check(rq *request, st state) syscall.Errno {
	switch {
	case rq.hdr.Flags&wire.TypeMask != wire.TypeCommand,
		row == nil,
		len(rq.payload) < row.minPayload,
		st&row.states == 0,
		len(rq.fds) > row.maxFDs:
		return syscall.EINVAL
	case rq.cut:
		return syscall.EMFILE
	}
	return 0
}
