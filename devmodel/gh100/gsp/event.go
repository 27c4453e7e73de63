package gsp

// Functions of events.
const (
	evInitDone    = 0x1001
	evRCTriggered = 0x1004
	evErrorLog    = 0x1006
)

// Types of errors, as drivers print them.
const (
	ErrorGraphics = 13 // an exception of an engine
	ErrorMMU      = 31 // a fault at an address
	ErrorPBDMA    = 32 // an invalid method or entry
)

// Failed tells the driver that a channel was ended, and why: the type of the error and, of a fault, the
// address and its kind. The driver frees the channel.
func (g *GSP) Failed(channel, kind uint32, addr uint64, fault uint32) {
	a, p := g.abi, make([]byte, g.abi.rcSize)
	a.rcChannel.put(p, uint64(channel))
	a.rcType.put(p, uint64(kind))
	a.rcAddress.put(p, addr)
	a.rcFault.put(p, uint64(fault))
	g.event(evRCTriggered, channel, p, func(e *Engine) {
		a.rcEngine.put(p, uint64(e.Type))
		g.channels[channel].Channel.Failed = true
	})
}

// LogError gives the driver a line for its log that concerns a channel.
func (g *GSP) LogError(channel, kind uint32, text string) {
	a, p := g.abi, make([]byte, g.abi.logSize)
	a.logChannel.put(p, uint64(channel))
	a.logType.put(p, uint64(kind))
	for i := range min(len(text), maxLogText-1) {
		a.logText.putItem(p, i, uint64(text[i]))
	}
	g.event(evErrorLog, channel, p, func(e *Engine) { a.logRunlist.put(p, uint64(e.Runlist)) })
}

// event sends an event of a channel. One of a channel that the driver has freed is nobody's concern.
func (g *GSP) event(function, channel uint32, p []byte, complete func(*Engine)) {
	if g.calls == nil || g.Suspended || channel >= Channels || g.channels[channel] == nil {
		return
	}
	complete(&Engines[g.channels[channel].Channel.Engine])
	g.calls.Event(function, p)
	g.Deliver()
}
