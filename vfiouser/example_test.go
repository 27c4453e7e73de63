package vfiouser_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// counter is a device with one register that counts its reads and fires MSI at every third.
type counter struct {
	host  *vfiouser.Host
	reads byte
}

func (c *counter) Regions() []vfiouser.Region {
	return []vfiouser.Region{vfiouser.RegionBAR0: {Size: 4096, Flags: vfiouser.RegionRead}}
}

func (c *counter) IRQs() []vfiouser.IRQ {
	return []vfiouser.IRQ{vfiouser.IRQMSI: {Count: 1, Flags: vfiouser.IRQEventFD}}
}

func (c *counter) ReadRegion(_ int, _ uint64, p []byte) error {
	c.reads++
	p[0] = c.reads
	if c.reads%3 == 0 {
		c.host.Trigger(vfiouser.IRQMSI, 0)
	}
	return nil
}

func (c *counter) WriteRegion(int, uint64, []byte) error { return nil }
func (c *counter) Reset() error                          { c.reads = 0; return nil }
func (c *counter) Attached(h *vfiouser.Host)             { c.host = h }
func (c *counter) Detached()                             { c.host = nil }

// A device is served at a socket, and a client reads its register.
func Example() {
	dir, err := os.MkdirTemp("", "vfiouser")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "device.sock")

	srv, err := vfiouser.NewServer(&counter{}, vfiouser.Options{})
	if err != nil {
		panic(err)
	}
	l, err := vfiouser.Listen(path)
	if err != nil {
		panic(err)
	}
	served := make(chan error)
	go func() { served <- srv.Serve(context.Background(), l) }()

	c, err := client.Dial(path, nil)
	if err != nil {
		panic(err)
	}
	irq, err := c.AttachIRQs(vfiouser.IRQMSI, 0, 1)
	if err != nil {
		panic(err)
	}
	for range 3 {
		v, err := c.Read32(vfiouser.RegionBAR0, 0)
		fmt.Println(v, err, irq[0].Count())
	}
	irq[0].Close()
	c.Close()
	srv.Close()
	fmt.Println(<-served)
	// Output:
	// 1 <nil> 0
	// 2 <nil> 0
	// 3 <nil> 1
	// vfiouser: server closed
}
