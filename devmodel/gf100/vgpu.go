package gf100

import (
	"fmt"
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
	devmodel.Function
	card  Card
	rom   []byte
	face  *gf100.Face
	fifo  fifo
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
	v := &VGPU{rom: cfg.ROM, card: noCard{}}
	v.PCI = space
	v.Chip = devmodel.Chip{InPRAMIN: gf100.InPRAMIN, ReadBAR: v.readBAR, WriteBAR: v.writeBAR, Settle: v.settle}
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
	if v.Space, err = mmio.New(gf100.SpaceSize, gf100.Blocks(), gf100.Apertures(), &b); err != nil {
		return nil, fmt.Errorf("devmodel/gf100: %w", err)
	}
	v.Space.Restrict()
	v.face.Attach(v.Space)
	v.face.OnGraphResume(func() { v.resumeEngine(gf100.EngineGR) })
	v.face.OnCopyResume(func(e int) { v.resumeEngine(gf100.EngineCE0 + e) })
	v.face.OnUnitReset(v.unitsReset)
	v.fifo.resolve(v.Space)
	v.alarm.Init(time.AfterFunc(time.Hour, v.alarmFired))
	return v, nil
}

// Connect sets the card behind the virtual GPU. It is called once, before the first access.
func (v *VGPU) Connect(c Card) {
	v.card, v.Windows = c, c
	v.schedule()
}

// Close stops the timer. The card belongs to the caller.
func (v *VGPU) Close() {
	v.Mu.Lock()
	defer v.Mu.Unlock()
	v.alarm.Close()
}

// clock is PTIMER's source in nanoseconds. It is the card's, because the card stamps
// semaphores with it.
func (v *VGPU) clock() uint64 { return v.card.Time() }

// Reset is a function-level reset.
func (v *VGPU) Reset() error {
	v.Mu.Lock()
	v.card.Set(BAR1Block, 0)
	v.card.Set(BAR3Block, 0)
	v.Mu.Unlock()
	// The card may deliver events while its channels end, so the lock is released. The
	// register reset below removes their traces.
	err := v.card.Reset()
	v.Mu.Lock()
	defer v.Mu.Unlock()
	v.Space.Reset()
	v.face.Reset()
	v.PCI.Reset()
	v.fifo.State = State{}
	v.card.Set(PRAMINBase, v.fifo.window.Get())
	v.card.Set(PollBase, v.fifo.userdBase.Get())
	v.schedule()
	v.Settle()
	return err
}

// settle returns the state of the interrupt tree, and sets the alarm.
func (v *VGPU) settle() (level, edge bool) {
	level, edge = v.face.Settle(v.fifo.Level())
	v.alarm.Follow(v.face)
	return level, edge
}

func (v *VGPU) alarmFired() {
	defer func() {
		if p := recover(); p != nil {
			v.card.Quarantine(fmt.Sprintf("the server failed in its timer: %v", p))
		}
	}()
	v.Mu.Lock()
	defer v.Mu.Unlock()
	if v.alarm.Fired() {
		v.Settle()
	}
}

// ROM returns the VBIOS image.
func (v *VGPU) ROM() []byte { return v.rom }
