package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/fault"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/devmodel"
)

// Virtual is a virtual GPU with its share of a card.
type Virtual struct {
	*Device
	GPU   VGPU
	Guest *aggregator.Guest

	poll        uint64
	unsupported func() []api.Unsupported
	logLines    chan string           // for the log; taken by a goroutine that may wait
	dirty       atomic.Pointer[error] // why the last client's data is still there, or nil
}

// NewVirtual makes a virtual GPU and gives it a share of a's card. Close gives
// the share back.
func NewVirtual(a *aggregator.Aggregator, share aggregator.GuestConfig, chip Chip) (*Virtual, error) {
	v := &Virtual{logLines: make(chan string, maxLogLines)}
	made, err := chip.New(share.VRAM, a.Culling(), v.logf)
	if err != nil {
		return nil, err
	}
	guest, err := a.AddGuest(share, made.Face)
	if err != nil {
		made.GPU.Close()
		return nil, err
	}
	made.join(guest)
	v.GPU, v.Guest, v.poll, v.unsupported = made.GPU, guest, made.poll, made.unsupported
	v.Device = &Device{fn: v.GPU, maps: v, shown: &guest.Stats().Windows.Mapped, faults: &guest.Stats().Channels.Faults, plug: v.plug, admit: v.admit, panicked: v.panicked, log: slog.New(slog.DiscardHandler)}
	return v, nil
}

// maxLogLines is how many lines of a virtual GPU wait for the log. More are dropped: the counters have them.
const maxLogLines = 64

func (v *Virtual) logf(format string, args ...any) {
	select {
	case v.logLines <- fmt.Sprintf(format, args...):
	default:
	}
}

// Close takes the virtual GPU out of service. No client may be attached.
func (v *Virtual) Close() error {
	v.GPU.Close()
	return v.Guest.Remove()
}

// plug connects the virtual GPU to a client: its interrupt to the client's, its
// channels to the client's memory. When a client detaches, its guest has ended: the
// channels end and its VRAM is cleared.
func (v *Virtual) plug(h *hostSide) {
	if h == nil {
		v.GPU.AttachHost(nil)
		v.Guest.DetachMemory()
		v.clean()
		return
	}
	v.pushDMA(v.Guest)
	v.GPU.AttachHost(h)
}

// panicked quarantines the guest: what the server was at is half done.
func (v *Virtual) panicked(where string, p any) {
	v.Guest.Quarantine(fault.Reason(where, p))
}

// clean resets the virtual GPU, and notes why the next client cannot have it. It
// retries windows that could not be closed first: their pages must be cleared too.
func (v *Virtual) clean() {
	closed := v.Guest.CloseWindows()
	err := errors.Join(closed, v.GPU.Reset())
	if why := v.Guest.QuarantineReason(); err == nil && why != "" { // a reset ends a quarantine, unless the card keeps a channel
		err = fmt.Errorf("the last client's channels may still write to its memory: %s", why)
	}
	if err == nil {
		v.Guest.Forget()
	}
	v.dirty.Store(&err)
}

// Dirty returns why clients are refused, or nil: the last client's data could not be
// cleared. Each new client causes another attempt.
func (v *Virtual) Dirty() error {
	if why := v.dirty.Load(); why != nil {
		return *why
	}
	return nil
}

// admit refuses a client that could see another client's data.
func (v *Virtual) admit() error {
	if v.Dirty() != nil {
		v.clean()
	}
	if err := v.Dirty(); err != nil {
		return fmt.Errorf("out of service, the last client's data cannot be cleared: %w", err)
	}
	return nil
}

// OpenWindows makes the windows that a client may map.
func (v *Virtual) OpenWindows() error {
	return v.Guest.OpenWindows(aperture.Config{
		BAR0: v.GPU.BARSize(devmodel.BAR0), BAR1: v.GPU.BARSize(devmodel.BAR1), BAR3: v.GPU.BARSize(devmodel.BAR3),
		ROM: v.GPU.ROM(), Poll: v.poll,
	})
}

// CloseWindows closes them.
func (v *Virtual) CloseWindows() error { return v.Guest.CloseWindows() }

// Windows lists them.
func (v *Virtual) Windows() []aperture.Region { return v.Guest.Regions() }
