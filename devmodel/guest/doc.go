// Package guest is a small GF100 driver that lives in the test process. It attaches to a
// vfio-user server as QEMU does and programs the GPU as nouveau does: instance blocks, page
// tables, runlists, rings, fences, interrupts. Beyond the socket it uses only the
// registers.
//
//	g, err := guest.Attach(ctx, socket, guest.Config{RAM: 16 << 20})
//	vm, err := g.NewSpace()
//	buf, err := g.AllocVRAM(1 << 20)
//	err = vm.Map(va, buf, guest.Big)
//	ch, err := g.NewChannel(1, vm)
//	err = ch.Copy(guest.CE0, dst, src, n)
//	f, err := ch.Fence()
//	err = g.Wait(f)
//
// Raw does everything that a driver would not do: any access of any width anywhere, entries
// and instance blocks of any bits. Package program makes random programs and predicts the
// memory after them.
//
// # Order of accesses
//
// Writes are posted, and collected until a read, a doorbell, or Sync. Reads of one access
// are synchronous; longer ones, of memory through a window, are a pipeline of single
// accesses. The server sees the accesses of a virtual machine, in order, only closer
// together.
//
// # Owners
//
// A Guest with its Spaces, Buffers and Channels is one goroutine's at a time. Its Raw, and
// the memory of its RAM, may be used by others at the same time, as by a hostile second
// processor. The package has one lock, bus.mu, held for one access or one batch of them; it
// starts no goroutines. Close gives back the connection, the memory and the eventfd.
package guest
