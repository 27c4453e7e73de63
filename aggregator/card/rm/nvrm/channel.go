package nvrm

import (
	"time"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

// Channel is a channel of the card, alone in its group.
type Channel struct {
	Handle Handle
	Token  uint32 // for the doorbell
	group  Handle
	engine uint32
}

// The notifier {time of 64 bits, Xid of 32, engine of 16, status of 16} of a channel: the driver sets its status to
// NotifierSet when the channel has stopped.
const (
	NotifierXid    = 8
	NotifierStatus = 14
	NotifierSet    = 0xffff
)

// USERDBytes is the size of USERD.
const USERDBytes = 512

// Words of USERD: where the ring is read, and up to where it is filled.
const (
	USERDGet = 0x88
	USERDPut = 0x8c
)

// Graphics is the engine of programs and drawing; others are copy engines by number.
const Graphics = -1

// ChannelConfig describes a channel.
type ChannelConfig struct {
	Space   *Space
	Engine  int    // Graphics or a copy engine
	Ring    uint64 // its address in the space
	Entries uint32
	// Own is memory of the channel alone. Its first bytes are the error notifier; USERD is
	// an offset there, of USERDBytes.
	Own     *Memory
	USERD   uint64
	Classes []uint32 // of the objects that it may have
	Slice   uint64   // microseconds; 0 is the driver's choice
}

// NewChannel makes a channel that runs.
func (c *Client) NewChannel(cfg ChannelConfig) (*Channel, error) {
	ch := &Channel{engine: engineGraphics}
	if cfg.Engine != Graphics {
		ch.engine = engineCopy + uint32(cfg.Engine)
	}
	var err error
	ch.group, err = alloc(c, "make a channel group", c.device, classGroup, &nvgpu.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS{
		HObjectError: handle(cfg.Own.Handle), HVASpace: handle(cfg.Space.Handle), EngineType: ch.engine,
	})
	if err != nil {
		return nil, err
	}
	if err := c.fill(ch, &cfg); err != nil {
		c.free("free a channel group", c.device, ch.group)
		return nil, err
	}
	return ch, nil
}

// fill makes what is below a channel's group.
func (c *Client) fill(ch *Channel, cfg *ChannelConfig) (err error) {
	var p nvgpu.NV_CHANNEL_ALLOC_PARAMS_V570
	if cfg.Engine == Graphics {
		sub, err := alloc(c, "make a subcontext", ch.group, classSubcontext, &nvgpu.NV_CTXSHARE_ALLOCATION_PARAMETERS{HVASpace: handle(cfg.Space.Handle)})
		if err != nil {
			return err
		}
		p.HContextShare = handle(sub)
	}
	p.HObjectError, p.GPFIFOOffset, p.GPFIFOEntries, p.EngineType = handle(cfg.Own.Handle), cfg.Ring, cfg.Entries, ch.engine
	p.HUserdMemory[0], p.UserdOffset[0] = handle(cfg.Own.Handle), cfg.USERD
	if ch.Handle, err = alloc(c, "make a channel", ch.group, classChannel, &p); err != nil {
		return err
	}
	for _, class := range cfg.Classes {
		engine := ch.engine
		if engine == engineGraphics && isCopy(class) {
			engine = engineCopy // the one that shares the graphics engine's channels
		}
		err := again(StatusNoMemory, crowded, func() error {
			_, err := alloc(c, "make an engine object", ch.Handle, nvgpu.ClassID(class), &nvgpu.NVB0B5_ALLOCATION_PARAMETERS{Version: 1, EngineType: engine})
			return err
		})
		if err != nil {
			return err
		}
	}
	if cfg.Engine == Graphics {
		// Some channels run programs at 0.6 of the speed without this (seen on an H200). It does not cut a launch that
		// a release waits for: those end before the time slice does.
		const setCompute, atBlockEnds = 1, 1
		if err := control(c, "have programs stop at the ends of blocks", c.subdevice, ctrlPreemption, &preemptionParams{Flags: setCompute, Channel: uint32(ch.Handle), Compute: atBlockEnds}); err != nil {
			return err
		}
	}
	var t tokenParams
	if err := control(c, "ask a channel's token", ch.Handle, ctrlToken, &t); err != nil {
		return err
	}
	ch.Token = t.Token
	if cfg.Slice != 0 {
		if err := c.SetSlice(ch, cfg.Slice); err != nil {
			return err
		}
	}
	return control(c, "schedule a channel", ch.group, ctrlSchedule, &scheduleParams{Enable: 1})
}

// isCopy reports whether a class is of the copy engines: their last byte is the same in all generations.
func isCopy(class uint32) bool { return class&0xff == 0xb5 }

// SetSlice sets how many microseconds the channel may use its engine while others wait.
func (c *Client) SetSlice(ch *Channel, us uint64) error {
	return control(c, "set a time slice", ch.group, ctrlTimeslice, &timesliceParams{us})
}

// Enable lets a channel run, or takes it off the card.
func (c *Client) Enable(ch *Channel, on bool) error {
	p := nvgpu.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS{NumChannels: 1}
	if !on {
		p.BDisable = 1
	}
	p.HClientList[0], p.HChannelList[0] = handle(c.root), handle(ch.Handle)
	// The driver is busy while it ends another channel that has not left the engine.
	return again(StatusBusy, 4*time.Second, func() error {
		return control(c, "enable or disable a channel", c.subdevice, ctrlDisable, &p)
	})
}

// Reset ends a channel whose work does not end.
func (c *Client) Reset(ch *Channel) error {
	return control(c, "reset a channel", ch.Handle, ctrlReset, &resetParams{Engine: ch.engine})
}

// Fault is what the driver knows of a channel's last MMU fault.
type Fault struct {
	VA   uint64
	Type uint32
	Text string
}

// Fault asks for the channel's last MMU fault.
func (c *Client) Fault(ch *Channel) (Fault, error) {
	var p faultParams
	err := control(c, "ask a channel's fault", ch.Handle, ctrlFault, &p)
	return Fault{VA: uint64(p.High)<<32 | uint64(p.Low), Type: p.Type, Text: cString(p.Text[:])}, err
}

// FreeChannel ends a channel.
func (c *Client) FreeChannel(ch *Channel) error {
	return c.free("free a channel", c.device, ch.group)
}
