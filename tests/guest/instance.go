package guest

import "fmt"

// Instance is instance memory of the driver's own: VRAM that it reaches through
// BAR3, as nouveau does with what it saves when it suspends.
type Instance struct {
	g *Guest
	o *object
}

// NewInstance takes n bytes of instance memory, cleared.
func (g *Guest) NewInstance(n uint64) (*Instance, error) {
	o, err := g.newObject(n)
	if err != nil {
		return nil, err
	}
	return &Instance{g, o}, g.bus.failed()
}

func (i *Instance) check(off uint64, n int) error {
	if off > i.o.size || uint64(n) > i.o.size-off {
		return fmt.Errorf("guest: %d bytes at %#x of %d bytes of instance memory", n, off, i.o.size)
	}
	return nil
}

// Write stores p at off.
func (i *Instance) Write(off uint64, p []byte) error {
	if err := i.check(off, len(p)); err != nil {
		return err
	}
	i.g.objectWrite(i.o, off, p)
	return i.g.bus.failed()
}

// Read fills p from off, after everything written before.
func (i *Instance) Read(off uint64, p []byte) error {
	if err := i.check(off, len(p)); err != nil {
		return err
	}
	i.g.objectRead(i.o, off, p)
	return i.g.bus.failed()
}

// BAR3 returns where BAR3 shows the memory.
func (i *Instance) BAR3() uint64 { return i.o.bar3 }
