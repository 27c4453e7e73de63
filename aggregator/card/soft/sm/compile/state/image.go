package state

import (
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// An Image is a view of memory that has a block.
type Image struct {
	*Block
	All    []Warp
	Memory []byte // shared memory
}

// Size is the memory that a block needs.
func Size(warps, shared uint32) int {
	return headerSize + int(warps)*warpSize + (int(shared)+sharedAlign-1)&^(sharedAlign-1)
}

// sharedAlign is the piece in which compiled code clears shared memory.
const sharedAlign = 32

// New makes a view of memory for blocks of a launch. Memory that is zero has no block yet.
func New(memory []byte, warps, shared uint32) (*Image, error) {
	if warps == 0 || warps > MaxWarps || shared > MaxShared {
		return nil, fmt.Errorf("block of %d warps with %d bytes of shared memory: want 1 to %d warps and at most %d bytes", warps, shared, MaxWarps, MaxShared)
	}
	if size := Size(warps, shared); len(memory) < size || !aligned(memory) {
		return nil, fmt.Errorf("%d bytes of memory for a block: want %d, at a multiple of 64", len(memory), size)
	}
	m := &Image{Block: blockAt(memory), All: warpsAt(memory[headerSize:], int(warps))}
	at := headerSize + int(warps)*warpSize
	m.Memory = memory[at : at+int(shared) : at+int(shared)]
	m.Warps, m.Shared = warps, shared
	return m, nil
}

// Put takes a block from interp's form.
func (m *Image) Put(b *interp.BlockState) error {
	if len(b.Warps) != len(m.All) || len(b.Shared) != len(m.Memory) {
		return fmt.Errorf("block of %d warps with %d bytes of shared memory: want %d and %d", len(b.Warps), len(b.Shared), len(m.All), len(m.Memory))
	}
	for i := range b.Warps {
		if err := m.PutWarp(i, &b.Warps[i]); err != nil {
			return err
		}
	}
	copy(m.Memory, b.Shared)
	return m.PutHeader(b)
}

// PutHeader takes what is not of a warp.
func (m *Image) PutHeader(b *interp.BlockState) error {
	if len(b.Locks) > MaxLocks {
		return fmt.Errorf("%d locks: want at most %d", len(b.Locks), MaxLocks)
	}
	m.ID, m.Turn, m.Clock, m.Locks = b.ID, uint32(b.Turn), b.Clock, uint32(len(b.Locks))
	for i, l := range b.Locks {
		m.Held[i] = Lock{Addr: l.Addr, Warp: uint16(l.Warp), Lane: uint16(l.Lane)}
	}
	for i := range b.Barriers {
		v := &b.Barriers[i]
		m.Barriers[i] = Barrier{uint32(v.Arrived), uint32(v.Expected), uint32(v.True), number(v.Any), number(v.Not)}
	}
	m.Running, m.Busy = 0, 1
	for i := range b.Warps {
		m.Running += number(!b.Warps[i].Done())
	}
	m.Begun = number(m.Running > 0)
	return nil
}

// PutWarp takes one warp.
func (m *Image) PutWarp(i int, w *interp.Warp) error {
	if len(w.Stack) > MaxDepth {
		return fmt.Errorf("control stack of %d entries: want at most %d", len(w.Stack), MaxDepth)
	}
	v := &m.All[i]
	v.Regs, v.Preds, v.Flags = w.Regs, w.Preds, [4]uint32{w.Flags.Zero, w.Flags.Sign, w.Flags.Carry, w.Flags.Overflow}
	v.Depth = uint32(len(w.Stack))
	for n, e := range w.Stack {
		v.Stack[n] = Entry{uint32(e.Kind), e.Target, e.Lanes}
	}
	v.PutFlow(w)
	return nil
}

// PutFlow takes what can change in a warp when another one runs: that it waits.
func (v *Warp) PutFlow(w *interp.Warp) {
	v.Active, v.Exited, v.PC = w.Active, w.Exited, w.PC
	v.Wait, v.WaitPC, v.WaitBy = int32(w.Wait), w.WaitPC, w.WaitBy
	v.Start, v.Site, v.Quiet = Unknown, Unknown, 0
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Get writes a block to interp's form. It refuses what interp could not have reached, so that no reader of
// its result has to look again.
func (m *Image) Get(b *interp.BlockState) error {
	if len(b.Warps) != len(m.All) || len(b.Shared) != len(m.Memory) {
		return fmt.Errorf("block of %d warps with %d bytes of shared memory: want %d and %d", len(b.Warps), len(b.Shared), len(m.All), len(m.Memory))
	}
	for i := range m.All {
		if err := m.GetWarp(i, &b.Warps[i]); err != nil {
			return fmt.Errorf("warp %d: %w", i, err)
		}
	}
	copy(b.Shared, m.Memory)
	return m.GetHeader(b)
}

// GetHeader writes what is not of a warp.
func (m *Image) GetHeader(b *interp.BlockState) error {
	head := *m.Block // once: the memory may change
	warps := uint32(len(m.All))
	if head.Locks > MaxLocks || head.Turn >= warps {
		return fmt.Errorf("%d locks, turn %d: want at most %d locks, and a turn below %d", head.Locks, head.Turn, MaxLocks, warps)
	}
	b.ID, b.Turn, b.Left, b.Clock, b.Locks = head.ID, int(head.Turn), 0, head.Clock, b.Locks[:0]
	for _, l := range head.Held[:head.Locks] {
		if uint32(l.Warp) >= warps || l.Lane >= interp.Lanes {
			return fmt.Errorf("lock of lane %d of warp %d: want less than %d and %d", l.Lane, l.Warp, interp.Lanes, warps)
		}
		b.Locks = append(b.Locks, interp.Lock{Addr: l.Addr, Warp: int(l.Warp), Lane: uint8(l.Lane)})
	}
	for i, v := range head.Barriers {
		if v.Arrived > warps || v.Expected > warps || v.True > warps*interp.Lanes {
			return fmt.Errorf("barrier %d of %d warps, of which %d arrived: want at most %d", i, v.Expected, v.Arrived, warps)
		}
		b.Barriers[i] = interp.Barrier{Arrived: int(v.Arrived), Expected: int(v.Expected), True: int(v.True), Any: v.Any != 0, Not: v.Not != 0}
	}
	return nil
}

// GetWarp writes one warp.
func (m *Image) GetWarp(i int, w *interp.Warp) error {
	v := &m.All[i]
	w.Regs, w.Preds = v.Regs, v.Preds
	clear(w.Regs[Registers-1][:])
	w.Preds[Predicates-1] = ^uint32(0)
	w.Flags = interp.Flags{Zero: v.Flags[0], Sign: v.Flags[1], Carry: v.Flags[2], Overflow: v.Flags[3]}
	depth := v.Depth
	if depth > MaxDepth {
		return fmt.Errorf("control stack of %d entries: want at most %d", depth, MaxDepth)
	}
	w.Stack = w.Stack[:0]
	for _, e := range v.Stack[:depth] {
		if e.Kind > uint32(interp.WholeQuads) {
			return fmt.Errorf("entry of kind %d on the control stack: want at most %d", e.Kind, interp.WholeQuads)
		}
		w.Stack = append(w.Stack, interp.Entry{Kind: interp.EntryKind(e.Kind), Target: e.Target, Lanes: e.Lanes})
	}
	return v.GetFlow(w)
}

// GetFlow writes what can change in a warp when another one runs.
func (v *Warp) GetFlow(w *interp.Warp) error {
	w.Active, w.Exited, w.PC = v.Active, v.Exited, v.PC
	wait := v.Wait
	if wait < interp.NoBarrier || wait >= MaxBarriers {
		return fmt.Errorf("it waits at barrier %d: want %d to %d", wait, interp.NoBarrier, MaxBarriers-1)
	}
	w.Wait, w.WaitPC, w.WaitBy = int8(wait), v.WaitPC, v.WaitBy
	return nil
}
