package gf100

import (
	"fmt"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/devmodel"
	"github.com/umbra-gpu/umbra/firmware"
	"github.com/umbra-gpu/umbra/mmio"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/mmio/pci"
)

// Config describes a virtual GPU.
type Config struct {
	ROM         []byte // VBIOS image; nil builds the default one
	PCI         pci.Options
	TPCs        []int      // per GPC; nil means those of a Quadro 6000
	Temperature func() int // degrees Celsius; nil reads 45
}

// VGPU is a virtual GPU. All methods may be called from any goroutine.
type VGPU struct {
	card Card
	rom  []byte

	mu   sync.Mutex
	host devmodel.Host // nil if none is attached
	sp   *mmio.Space
	face *gf100.Face
	pci  *pci.ConfigSpace
	fifo fifo
	pin  pci.Pin

	alarm gf100.Alarm
}

// New returns a virtual GPU with vram bytes of memory. [VGPU.Connect] sets its card before
// the first access, because the card needs the VGPU as the receiver of its events.
func New(cfg Config, vram uint64) (*VGPU, error) {
	space, err := gf100.NewConfigSpace(cfg.PCI)
	if err != nil {
		return nil, err
	}
	if cfg.ROM == nil {
		if cfg.ROM, err = firmware.Build(firmware.Options{}); err != nil {
			return nil, fmt.Errorf("devmodel/gf100: build a VBIOS: %w", err)
		}
	}
	v := &VGPU{pci: space, rom: cfg.ROM, card: noCard{}}
	v.face, err = gf100.NewFace(gf100.FaceConfig{
		VRAM: vram, TPCs: cfg.TPCs, ROM: cfg.ROM, Config: space, Clock: v.clock, Temperature: cfg.Temperature,
	})
	if err != nil {
		return nil, err
	}
	var b mmio.Bindings
	v.face.Bind(&b)
	v.bindMMU(&b)
	v.bindFIFO(&b)
	if v.sp, err = mmio.New(gf100.SpaceSize, gf100.Blocks(), gf100.Apertures(), &b); err != nil {
		return nil, fmt.Errorf("devmodel/gf100: %w", err)
	}
	v.sp.Restrict()
	v.face.Attach(v.sp)
	v.face.OnGraphResume(func() { v.resumeEngine(gf100.EngineGR) })
	v.face.OnCopyResume(func(e int) { v.resumeEngine(gf100.EngineCE0 + e) })
	v.face.OnUnitReset(v.unitsReset)
	v.fifo.resolve(v.sp)
	v.alarm.Init(time.AfterFunc(time.Hour, v.alarmFired))
	return v, nil
}

// Connect sets the card behind the virtual GPU. It is called once, before the first access.
func (v *VGPU) Connect(c Card) {
	v.card = c
	v.schedule()
}

// Close stops the timer. The card belongs to the caller.
func (v *VGPU) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alarm.Close()
}

// clock is PTIMER's source in nanoseconds. It is the card's, because the card stamps
// semaphores with it.
func (v *VGPU) clock() uint64 { return v.card.Time() }

// AttachHost sets the receiver of interrupts, nil for none, and reports the state of the
// line to it.
func (v *VGPU) AttachHost(h devmodel.Host) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.host = h
	v.pin.Forget()
	v.settle()
}

// Reset is a function-level reset.
func (v *VGPU) Reset() error {
	v.mu.Lock()
	v.card.Set(BAR1Block, 0)
	v.card.Set(BAR3Block, 0)
	v.mu.Unlock()
	// The card may deliver events while its channels end, so the lock is released. The
	// register reset below removes their traces.
	err := v.card.Reset()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sp.Reset()
	v.face.Reset()
	v.pci.Reset()
	v.fifo.State = State{}
	v.card.Set(PRAMINBase, v.fifo.window.Get())
	v.card.Set(PollBase, v.fifo.userdBase.Get())
	v.schedule()
	v.settle()
	return err
}

// settle recomputes the interrupt tree and the alarm, once per access or event. Memory that
// an interrupt announces is visible before the interrupt.
func (v *VGPU) settle() {
	level, edge := v.face.Settle(v.fifo.Level())
	if line, changed := v.pin.Settle(v.pci, level, edge); changed && v.host != nil {
		if line.Level {
			v.card.MemoryBarrier()
		}
		v.host.Interrupt(line)
	}
	v.alarm.Follow(v.face)
}

func (v *VGPU) alarmFired() {
	defer func() {
		if p := recover(); p != nil {
			v.card.Quarantine(fmt.Sprintf("the server failed in its timer: %v", p))
		}
	}()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.alarm.Fired() {
		v.settle()
	}
}

// ROM returns the VBIOS image.
func (v *VGPU) ROM() []byte { return v.rom }

// Registers returns the register space, for its counters.
func (v *VGPU) Registers() *mmio.Space { return v.sp }
