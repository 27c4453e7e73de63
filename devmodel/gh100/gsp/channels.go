package gsp

const (
	// Channels is how many ids there are. The first one is GSP's, for the first context at a boot.
	Channels = 2048

	userdSize    = 0x200
	instanceSize = 0x1000
	rootSize     = 0x1000 // the unit in which the flush of a space names its directory
	maxEntries   = 1 << 24
	vaBits       = 57
	busBits      = 52

	inVRAM        = 2      // how a channel's structures name VRAM
	levelInVRAM   = 1      // how the levels of a directory do
	spaceExternal = 1 << 3 // a flag of a space
	internalAdmin = 3      // a mask of a channel's internal flags
)

// directoryTargets are the memories that the flags of a page directory name.
var directoryTargets = [4]Target{TargetVRAM, TargetRAM, TargetRAM, TargetNone}

func (g *GSP) openSpace(_ *node, o *Object, p []byte) uint32 {
	g.Spaces++
	o.Space = Space{ID: g.Spaces, External: g.abi.spaceFlags.get(p)&spaceExternal != 0}
	g.host.NewSpace(o.Space.ID)
	return ok
}

func (g *GSP) closeSpace(o *Object) {
	if !g.Suspended {
		g.host.DropSpace(o.Space.ID)
	}
}

// spaceIn returns the address space of that handle below a device, nil if there is none.
func (g *GSP) spaceIn(device *node, handle uint32) *Space {
	if n := g.objects.find(device.Client, handle); n != nil && n.parent == device && n.Class == clSpace {
		return &n.Space
	}
	return nil
}

// used reports whether channels use a space.
func (g *GSP) used(space uint64) bool {
	for _, o := range g.channels {
		if o != nil && o.Channel.Space == space {
			return true
		}
	}
	return false
}

// inside reports whether size bytes of VRAM at addr are there and aligned to their size.
func (g *GSP) inside(addr, size uint64) bool { return addr%size == 0 && addr < g.cfg.VRAM }

func (g *GSP) openChannel(device *node, o *Object, p []byte) uint32 {
	a := g.abi
	flags := a.channelFlags.get32(p)
	c := Channel{
		ID:       flags>>12&0x1ff*8 + flags>>8&7,
		Engine:   engineOf(a.channelEngine.get32(p)),
		Ring:     a.channelRing.get(p),
		Entries:  a.channelEntries.get32(p),
		USERD:    a.channelUSERD.get(p),
		Instance: a.channelInstance.get(p),
		Admin:    a.channelInternal.get(p)&internalAdmin != 0,
	}
	space := g.spaceIn(device, a.channelSpace.get32(p))
	switch {
	case space == nil:
		return invalidHandle
	case c.ID >= Channels, c.Engine < 0, c.Entries == 0, c.Entries > maxEntries,
		c.Ring%8 != 0, c.Ring >= 1<<vaBits, uint64(c.Entries)*8 > 1<<vaBits-c.Ring,
		a.channelUSERDIn.get(p) != inVRAM, !g.inside(c.USERD, userdSize),
		a.channelInstanceIn.get(p) != inVRAM, !g.inside(c.Instance, instanceSize):
		return invalidArgument
	case g.channels[c.ID] != nil:
		return inUse
	}
	c.Space = space.ID
	o.Channel, g.channels[c.ID] = c, o
	return ok
}

func (g *GSP) closeChannel(o *Object) {
	g.channels[o.Channel.ID] = nil
	if o.Channel.Opened && !g.Suspended {
		g.host.CloseChannel(o.Channel.ID)
	}
}

// ChannelOf returns the channel that the token of a doorbell names: runlist << 16 | channel. It is false
// if the host has no such channel.
func (g *GSP) ChannelOf(token uint32) (id uint32, there bool) {
	id = token & 0xffff
	if g.Suspended || id >= Channels || g.channels[id] == nil {
		return 0, false
	}
	c := &g.channels[id].Channel
	return id, c.Opened && Engines[c.Engine].Runlist == token>>16
}

// openGraphics makes an object of a class that only the runlist of the graphics engine runs.
func (g *GSP) openGraphics(channel *node, _ *Object, _ []byte) uint32 {
	if Engines[channel.Channel.Engine].Runlist != Engines[engineGraphics].Runlist {
		return invalidClass
	}
	return ok
}

// openOnHost lets the host have the channel. That of the first context never comes to it.
func (g *GSP) openOnHost(c *Channel) uint32 {
	if !c.Opened && !c.Failed {
		if g.host.OpenChannel(*c) != nil {
			return noMemory
		}
		c.Opened = true
	}
	return ok
}

func (g *GSP) bind(n *node, p []byte) uint32 {
	if engineOf(g.abi.bindEngine.get32(p)) != n.Channel.Engine {
		return invalidArgument
	}
	return g.openOnHost(&n.Channel)
}

// schedule lets a channel run, or stops it.
func (g *GSP) schedule(n *node, p []byte) uint32 {
	c := &n.Channel
	status := g.openOnHost(c)
	if status == ok {
		c.Scheduled = g.abi.scheduleOn.get(p) != 0
		if c.Opened {
			g.host.Schedule(c.ID, c.Scheduled && !g.Stopped)
		}
	}
	return status
}

// setChannelScheduling stops all channels, or lets those run again that the driver wants to.
func (g *GSP) setChannelScheduling(_ *node, p []byte) uint32 {
	g.Stopped = g.abi.stopOn.get(p) != 0
	for _, o := range g.channels {
		if o != nil && o.Channel.Scheduled && o.Channel.Opened {
			g.host.Schedule(o.Channel.ID, !g.Stopped)
		}
	}
	return ok
}

func (g *GSP) setDirectory(n *node, p []byte) uint32 {
	s := g.spaceIn(n, g.abi.directorySpace.get32(p))
	if s == nil || !s.External {
		return invalidHandle
	}
	return g.setRoot(s, g.abi.directoryRoot.get(p), directoryTargets[g.abi.directoryFlags.get(p)&3])
}

// copyDirectory sets the directory of a space that GSP shares. GSP's part of it stays empty.
func (g *GSP) copyDirectory(n *node, p []byte) uint32 {
	if n.Space.External || g.abi.copyLevels.get(p) == 0 || g.abi.copyAperture.get(p) != levelInVRAM {
		return invalidArgument
	}
	return g.setRoot(&n.Space, g.abi.copyAddress.get(p), TargetVRAM)
}

func (g *GSP) setRoot(s *Space, root uint64, in Target) uint32 {
	if in == TargetNone || root%rootSize != 0 || root >= 1<<busBits || in == TargetVRAM && !g.inside(root, rootSize) {
		return invalidArgument
	}
	s.Root, s.Target = root, in
	g.host.SetDirectory(s.ID, root, in)
	return ok
}

func (g *GSP) unsetDirectory(n *node, p []byte) uint32 {
	s := g.spaceIn(n, g.abi.unsetSpace.get32(p))
	if s == nil {
		return invalidHandle
	}
	s.Root, s.Target = 0, TargetNone
	g.host.SetDirectory(s.ID, 0, TargetNone)
	return ok
}
