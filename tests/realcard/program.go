package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/rig"
)

// code is a program of SM90 for threads i: x = i; n times x = x*1664525 + 1013904223; words[i] = x. It finds the address
// of words at 0x210 of bank 0, n at 0x218, and the threads of a block at 0. Each instruction is two words of 64 bits:
// what ptxas 13.0 makes of that text, but for the store, which needs no descriptor.
var code = [...]uint64{
	0x00000a00ff017b82, 0x000fe20000000800, // LDC R1, c[0][0x28]
	0x0000000000057919, 0x000e2e0000002100, // S2R R5, SR_TID.X
	0x00000000000479c3, 0x000e220000002500, // S2UR UR4, SR_CTAID.X
	0x0000860000067ab9, 0x000fe40000000a00, // ULDC.64 UR6, c[0][0x218]
	0x00000006ff007c0c, 0x000fc8000bf05070, // ISETP.NE.U32 P0, RZ, UR6
	0x00000007ff007c0c, 0x000fe2000bf05100, // ISETP.NE.U32.EX P0, RZ, UR7, P0
	0x00000000ff007b82, 0x000e300000000800, // LDC R0, c[0][0]
	0x00008400ff027b82, 0x000e620000000a00, // LDC.64 R2, c[0][0x210]
	0x0000000400057c24, 0x001fe2000f8e0205, // IMAD R5, R0, UR4, R5
	0x0000820000047ab9, 0x000fc60000000a00, // ULDC.64 UR4, c[0][0x208]
	0x0000000405027825, 0x002fe200078e0002, // IMAD.WIDE.U32 R2, R5, 4, R2
	0x0000000000208947, 0x000fec0003800000, // @!P0 BRA the store
	0x0019660dff007435, 0x000fe200000001ff, // HFMA2.MMA R0 = 1664525
	0x0000860000067ab9, 0x000fd40000000a00, // ULDC.64 UR6, c[0][0x218]
	0xffffffff06067890, 0x000fe2000ff1e03f, // UIADD3 UR6, UP0, UR6, -1
	0x3c6ef35f05057424, 0x000fc600078e0200, // IMAD R5, R5, R0, 1013904223
	0xffffffff07077890, 0x000fe400087fe43f, // UIADD3.X UR7, UR7, -1, UP0
	0x00000006ff007c0c, 0x000fc8000bf05070, // ISETP.NE.U32 P0, RZ, UR6
	0x00000007ff007c0c, 0x000fda000bf05100, // ISETP.NE.U32.EX P0, RZ, UR7, P0
	0xfffffffc00e80947, 0x000fea000383ffff, // @P0 BRA the UIADD3
	0x0000000502007386, 0x000fe2000010e900, // STG [R2], R5
	0x000000000000794d, 0x000fea0003800000, // EXIT
	0xfffffffc00fc7947, 0x000fc0000383ffff, // BRA itself
}

// A job is a launch of code.
type job struct {
	blocks uint32
	times  uint64
	words  uint64 // address
}

// size is the bytes that a job writes.
func (j job) size() uint64 { return uint64(j.blocks) * blockThreads * 4 }

// figureJob fills the card for a quarter of a millisecond: less than a time slice, which does not cut a launch.
var figureJob = job{blocks: 2048, times: 2500}

const jobsInRow = 100

const (
	blockThreads = 256
	jobSize      = 64 << 10 // of the memory that a job is laid out in
	jobConstants = 0x1000
	jobQMD       = 0x2000
	classCompute = 0xcbc0
)

// layOut writes a job into memory that a channel reaches at an address.
func (j job) layOut(p []byte, va uint64) {
	for i, w := range code {
		binary.LittleEndian.PutUint64(p[8*i:], w)
	}
	bank := p[jobConstants:]
	binary.LittleEndian.PutUint32(bank, blockThreads)
	binary.LittleEndian.PutUint64(bank[0x210:], j.words)
	binary.LittleEndian.PutUint64(bank[0x218:], j.times)
	constants := (va + jobConstants) >> 6
	const bankSize, registers = 0x400, 16
	// Words of a QMD of version 4.0 (clcbc0qmd.h); the others are zero.
	for word, value := range map[int]uint32{
		0:  2<<23 | 0x1f<<16,       // QMD_TYPE GRID_CTA, QMD_GROUP_ID
		13: 1,                      // CONSTANT_BUFFER_VALID(0)
		17: 1 << 24,                // API_VISIBLE_CALL_LIMIT NO_CHECK
		18: 4<<4 | 1<<30 | 1<<31,   // QMD_MAJOR_VERSION; INVALIDATE_INSTRUCTION_CACHE and _SHADER_CONSTANT_CACHE
		19: 1 | 0x3a<<6 | 1<<12,    // MIN, MAX, TARGET_SM_CONFIG_SHARED_MEM_SIZE
		32: j.blocks, 33: 1, 34: 1, // GRID_WIDTH, _HEIGHT, _DEPTH
		36: blockThreads | 1<<16, 37: 1 | registers<<16, // CTA_THREAD_DIMENSION0 to 2, REGISTER_COUNT
		38: uint32(va), 39: uint32(va >> 32), // PROGRAM_ADDRESS
		48: uint32(constants), 49: uint32(constants>>32) | bankSize>>4<<19,
	} {
		binary.LittleEndian.PutUint32(p[jobQMD+4*word:], value)
	}
}

// launch are the commands that start a job which is laid out at an address.
func launch(va uint64) *push.Buffer {
	const (
		subchannel             = 1
		sharedWindow           = 0x2a0 // both where NVK has them: a store to a window's addresses is no global one
		localWindow            = 0x7b0
		sendPCASA              = 0x2b4
		sendSignalingPCAS2B    = 0x2c0
		invalidateCopySchedule = 3
	)
	b := new(push.Buffer).SetObject(push.Object{Class: classCompute, Subchan: subchannel})
	return b.Inc(subchannel, sharedWindow, 1, 0).Inc(subchannel, localWindow, 0, 0xff00_0000).
		Inc(subchannel, sendPCASA, uint32((va+jobQMD)>>8)).Inc(subchannel, sendSignalingPCAS2B, invalidateCopySchedule)
}

// check compares what a job wrote.
func (j job) check(words []byte) error {
	factor, sum := uint32(1), uint32(0)
	for range j.times {
		factor, sum = factor*1664525, sum*1664525+1013904223
	}
	for i := range j.blocks * blockThreads {
		if got, want := binary.LittleEndian.Uint32(words[4*i:]), i*factor+sum; got != want {
			return fmt.Errorf("word %d of a program is %#x, want %#x", i, got, want)
		}
	}
	return nil
}

// channel is one that takes any commands.
type channel interface {
	rig.Channel
	Submit(*push.Buffer) error
}

// runner is a tenant's channel with a job.
type runner struct {
	job
	channel
	va     uint64
	result []byte
}

// newRunner makes a channel of the graphics engine with a job. It writes to memory of its own, if it names none.
func (t *tenant) newRunner(id int, j job) (*runner, error) {
	ch, err := t.Open(2*id + 1) // odd ones are of that engine
	va, p, mapErr := t.MapRAM(jobSize)
	words, result, wordsErr := t.MapRAM(j.size())
	if err := errors.Join(err, mapErr, wordsErr); err != nil {
		return nil, err
	}
	j.words = cmp.Or(j.words, words)
	j.layOut(p, va)
	return &runner{job: j, channel: ch.(channel), va: va, result: result}, nil
}

// start starts the job once more.
func (r *runner) start() error { return r.Submit(launch(r.va)) }

// finish waits for all, and checks what was written.
func (r *runner) finish() error {
	if err := r.Finish(); err != nil {
		return err
	}
	return r.check(r.result)
}
