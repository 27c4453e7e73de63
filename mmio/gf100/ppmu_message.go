package gf100

// The messages that PMU's microcode answers, process by process. A process is
// named by four letters, least significant first.
const (
	pmuMEMX = 0x584d454d // runs scripts of register writes while memory is idle
	pmuI2C  = 0x5f433249 // talks to devices on the board
	pmuTEST = 0x54534554

	memxInfo      = 0
	memxExec      = 1
	memxInfoTrain = 1

	i2cRead  = 0
	i2cWrite = 1
	i2cPorts = 10
	i2cNoAck = 1 // any value but zero is a failure

	pmuPointers  = 0x0f // put and get run over twice the ring
	pmuSlots     = 0x07
	pmuFull      = 0x08 // put ^ get of a full ring
	pmuSlotSize  = 16
	pmuIntrReply = 1 << 6
)

// Locations of the host's MEMX script, and of the results of memory training.
const (
	memxData      = 0x1000
	memxDataSize  = 0x800
	memxTrain     = 0x1800
	memxTrainSize = 0x100
)

// memxWrite is the one opcode of a MEMX script that matters here: pairs of an
// address and a value. A script word holds the opcode in bits 15:0 and the
// number of argument words in bits 31:16.
const memxWrite = 3

type pmuMessage struct{ process, message, data0, data1 uint32 }

// pmuProcess answers a message; reply is false if it stays without one.
type pmuProcess func(u *pmuUnit, m pmuMessage) (r pmuMessage, reply bool)

var pmuProcesses = map[uint32]pmuProcess{
	pmuMEMX: (*pmuUnit).memx,
	pmuI2C:  (*pmuUnit).i2c,
	pmuTEST: (*pmuUnit).test,
}

// receive answers the host's messages in the ring. It stops when the reply ring is
// full and continues when the host has read replies.
func (u *pmuUnit) receive() {
	// A script may write the registers that lead here; the running call sees
	// what they changed.
	if !u.running || u.busy {
		return
	}
	u.busy = true
	defer func() { u.busy = false }()
	put := u.put.Get() & pmuPointers
	for get := u.get.Get() & pmuPointers; get != put && u.running; {
		if (u.replyPut.Get()^u.replyGet.Get())&pmuPointers == pmuFull {
			return
		}
		m := u.fetch(get)
		get = (get + 1) & pmuPointers
		u.get.Put(get)
		answer, known := pmuProcesses[m.process]
		if !known {
			continue
		}
		if r, ok := answer(u, m); ok {
			u.reply(r)
		}
	}
}

func (u *pmuUnit) fetch(slot uint32) pmuMessage {
	at := pmuSendRing + slot&pmuSlots*pmuSlotSize
	return pmuMessage{load(u.dmem, at), load(u.dmem, at+4), load(u.dmem, at+8), load(u.dmem, at+12)}
}

func (u *pmuUnit) reply(m pmuMessage) {
	put := u.replyPut.Get()
	at := pmuRecvRing + put&pmuSlots*pmuSlotSize
	for i, v := range [...]uint32{m.process, m.message, m.data0, m.data1} {
		store(u.dmem, at+uint32(i)*4, v)
	}
	u.replyPut.Put((put + 1) & pmuPointers)
	u.falcon.raise(pmuIntrReply)
}

func (u *pmuUnit) memx(m pmuMessage) (pmuMessage, bool) {
	switch m.message {
	case memxInfo:
		if m.data0 == memxInfoTrain {
			m.data0, m.data1 = memxTrain, memxTrainSize
		} else {
			m.data0, m.data1 = memxData, memxDataSize
		}
		return m, true
	case memxExec:
		u.script(m.data0, m.data1)
		m.data0, m.data1 = 0, 0 // it took no time, and no input line is high
		return m, true
	}
	return m, false
}

// script runs the MEMX script between two byte addresses of data memory. Memory
// is always idle and nothing needs time to settle, so only the writes matter.
func (u *pmuUnit) script(at, end uint32) {
	end = min(end, memxData+memxDataSize)
	for at >= memxData && at+4 <= end {
		head := load(u.dmem, at)
		at += 4
		words := head >> 16
		if head&0xffff == memxWrite {
			for i := uint32(0); i+1 < words && at+i*4+8 <= end; i += 2 {
				u.write(load(u.dmem, at+i*4), load(u.dmem, at+i*4+4))
			}
		}
		at += words * 4
	}
}

// write is a register write by the PMU. The guest could write the same register itself.
func (u *pmuUnit) write(off, v uint32) {
	if off%4 == 0 && off < u.space.Size() {
		u.space.Write32(off, v)
	}
}

// i2c finds no device: no address is acknowledged.
func (u *pmuUnit) i2c(m pmuMessage) (pmuMessage, bool) {
	port := m.data0 >> 24
	known := m.message == i2cRead || m.message == i2cWrite
	if port >= i2cPorts || !known {
		return m, false
	}
	m.data0 = i2cNoAck
	return m, true
}

func (u *pmuUnit) test(m pmuMessage) (pmuMessage, bool) {
	u.tests.Put(u.tests.Get() + 1)
	return m, false
}
