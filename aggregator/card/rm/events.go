package rm

import (
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// event is what a channel's receiver has not been told yet.
type event struct {
	ch      *channel
	engines card.EngineSet
	fault   *card.Fault
}

// events receives what a share's worker reports.
type events struct{ *share }

// Completed implements worker.Events.
func (s events) Completed(host int32) {
	e, ok := s.gpu.engineOf(host)
	if !ok {
		return
	}
	s.mu.Lock()
	for _, ch := range s.channels {
		if ch.engine == e && ch.tellsCompletion() {
			s.events = append(s.events, event{ch: ch, engines: 1 << e})
		}
	}
	s.mu.Unlock()
	s.deliver()
}

// tellsCompletion reports whether the channel had work since it was idle. The card's event may be of the last of it, or come before
// the server's own release.
func (ch *channel) tellsCompletion() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	told := ch.announced && !ch.gone
	ch.announced = told && (ch.next != ch.put || ch.busy())
	return told
}

// Stopped implements worker.Events.
func (s events) Stopped(number, xid uint32, f nvrm.Fault) {
	ch := s.gpu.channel(number)
	if ch == nil || ch.share != s.share {
		return
	}
	ch.fail(faultOf(ch.engine, xid, f))
	s.deliver()
}

// Ended implements worker.Events.
func (s events) Ended(err error) {
	if !s.dead.Swap(true) {
		s.broken(err)
		s.deliver()
	}
}

// xids are the driver's reasons for which it stops a channel of a guest (nverror.h). Others are failures of the card.
var xids = []struct {
	first, last uint32
	kind        card.Kind
	text        string
}{
	{13, 13, card.ProgramError, "an exception of the graphics engine"},
	{31, 31, card.Translation, "an MMU fault"},
	{32, 32, card.BadHeader, "an invalid or corrupted push buffer"},
	{39, 41, card.BadMethod, copyEngine},
	{43, 43, card.ProgramError, "did not end"},
	{45, 45, card.ProgramError, "did not end: its work was removed"},
	{69, 69, card.BadMethod, "an exception of the graphics engine's class"},
	{70, 72, card.BadMethod, copyEngine},
	{75, 77, card.BadMethod, copyEngine},
	{85, 85, card.BadMethod, copyEngine},
	{109, 109, card.ProgramError, "did not end: it did not leave the engine for others"},
	{126, 135, card.BadMethod, copyEngine},
}

const copyEngine = "an exception of a copy engine"

func faultOf(e card.Engine, xid uint32, f nvrm.Fault) card.Fault {
	kind, text := card.Broken, "the NVIDIA driver stopped a channel"
	for _, x := range xids {
		if x.first <= xid && xid <= x.last {
			kind, text = x.kind, x.text
		}
	}
	out := card.Fault{Kind: kind, Engine: e, Code: uint64(xid), Text: fmt.Sprintf("%s (Xid %d)", text, xid)}
	if kind != card.Translation {
		return out
	}
	out.VA, out.Text, out.Reason = f.VA, "", shadowpt.PageNotPresent // a face has words for it
	if strings.Contains(f.Text, "RO_") {
		out.Write, out.Reason = true, shadowpt.PageReadOnly
	}
	return out
}

// fail ends a channel, and has its receiver told why.
func (ch *channel) fail(f card.Fault) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.failLocked(f)
}

// failLocked is fail with mu held, and so in a doorbell: the share's goroutine delivers the fault.
func (ch *channel) failLocked(f card.Fault) {
	if ch.failed || ch.gone {
		return
	}
	ch.failed, ch.fault = true, &f
	ch.setOn(false)
	ch.share.faulted.Store(true)
	ch.share.look()
}

// deliver tells receivers what has happened. Any goroutine may call it without locks.
func (s *share) deliver() {
	s.delivering.Lock()
	defer s.delivering.Unlock()
	for {
		s.mu.Lock()
		list := s.events
		s.events, s.spare = s.spare[:0], list
		if s.faulted.Swap(false) {
			for _, ch := range s.channels {
				if f := ch.takeFault(); f != nil {
					list = append(list, event{ch: ch, fault: f})
				}
			}
			s.spare = list
		}
		s.mu.Unlock()
		if len(list) == 0 {
			return
		}
		for _, e := range list {
			if e.fault != nil {
				e.ch.ev.Fault(*e.fault)
			} else {
				e.ch.ev.Completed(e.engines)
			}
		}
		clear(list)
	}
}

func (ch *channel) takeFault() *card.Fault {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	f := ch.fault
	ch.fault = nil
	return f
}
