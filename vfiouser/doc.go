// Package vfiouser serves one PCI device over the vfio-user protocol to one client at a time
// (QEMU's vfio-user-pci, or package client).
//
// # What it owns
//
// The socket, the message stream, the client's DMA map (Memory), its interrupt eventfds, and the
// migration and dirty-logging state of the connection. The device owns all state that outlives a
// client.
//
// # Goroutines and threads
//
//   - Serve runs the accept loop on the caller's goroutine.
//   - Each connection runs on one goroutine locked to one OS thread, started by Serve and
//     awaited by it. It blocks in recvmsg on a descriptor of its own, outside the net poller:
//     that saves 2-5 us of each round trip. All calls of a Device come from this thread.
//   - Connections, and descriptors that a client sent, are closed by a goroutine of the server's,
//     except memory that a range of the DMA map holds: that close does not wait. Connections that
//     were refused have another, so that they do not delay the client's. Both end when all is
//     closed. A listener is closed by a goroutine of its own: its queue may hold such descriptors
//     too.
//   - When a context given to Serve or ServeConn ends, a short-lived goroutine acts on it.
//
// A thread that comes out of recvmsg needs one of the Go scheduler's processors. In a program
// whose goroutines compute all the time it waits for one up to 10 ms and more, while a guest's
// processor waits: such a program should set GOMAXPROCS to two more than the machine's
// processors, which leaves the choice to the kernel. Beside engines that compute, this lowered the
// 99th percentile of a read from some 15 ms to 0.1-1 ms.
//
// Host.Trigger, Host.DMARead, Host.DMAWrite and all of Memory may be called from any goroutine.
//
// # Locks, in order
//
//  1. Server.mu      listener and the present connection
//  2. Memory.mu      the DMA map; never held while a Device is called
//  3. irqTable.mu    vectors and their eventfds
//  4. dmaCalls.mu    outstanding DMA_READ and DMA_WRITE
//  5. conn.sendMu    one message at a time on the socket
//  6. conn.fdMu      the socket against its closing
//
// No lock is held in a system call that a client can stretch, and nothing that a client sent is closed
// on a thread that others wait for. The last close of a descriptor waits for its file system, its linger
// time, its watchers or the pages of its memory, and so does a receive that drops it. While maxDiscards
// of them are not closed, the server receives nothing from its clients. An interrupt's eventfd is
// signalled without a write, which waits while the client keeps the counter full (signaller). So a
// client stops its own thread only if Options.AnyDMAFile lets it choose a file that never answers; Serve
// and Close return ErrStuck then.
//
// Memory.watchMu guards the list of watchers of the map, discards.mu what is to be closed. They are held
// only briefly, with none of these taken in them, and not while watchers are called. Counters are
// atomic: a message takes one lock, conn.sendMu, and none if it wants no reply.
//
// # Errors
//
// A message that breaks a rule is answered with an errno and the connection continues. Only a
// header with an impossible size ends it, because the start of the next message is then unknown. A
// panic of the device is contained: that access fails with EIO and the panic is counted.
//
// # Choices where the specification and its implementations differ
//
//   - VERSION: a reply is never longer than its request, because QEMU reads it into the
//     request's buffer; capabilities that do not fit are left out, the least important first.
//     Minor is always 0 (QEMU proposes 0.0).
//   - DMA_MAP of an overlapping range answers EEXIST, as specified (libvfio-user: EINVAL).
//   - DMA_MAP beyond the limits of the DMA map answers ENOSPC, as VFIO does where its entries
//     are spent (libvfio-user: EINVAL).
//   - DMA_MAP takes libvfio-user's flags MMAP and FILE_IO: EINVAL for both, and without a descriptor.
//     FILE_IO asks that a range be read and written through its file. A range of a memfd, of tmpfs or of
//     hugetlbfs is mapped all the same: its mapping is the file's own pages, so that every read and write
//     of the file sees the same bytes. Other files answer EOPNOTSUPP.
//   - DMA_UNMAP removes all ranges inside the span that it names, and succeeds if there are none, as
//     VFIO does and QEMU expects: a guest behind an IOMMU unmaps 2 MiB at a time over single pages. The
//     specification and libvfio-user want exactly one mapping, and libvfio-user answers ENOENT. A span
//     that holds a range only in part, is empty or wraps answers EINVAL, and nothing is removed.
//   - VERSION of another major version is answered with EINVAL before the connection is closed.
//   - twin_socket is not offered: neither QEMU nor libvfio-user's clients ask for it.
//   - DMA_MAP of a file that is neither a memfd nor in tmpfs or hugetlbfs answers EOPNOTSUPP, unless
//     Options.AnyDMAFile is set: the server would wait in a page fault for a file system that the
//     client chose. A userfaultfd of the client does not stop the server, for it acts on the client's
//     own mappings, and neither does a lease, for the server opens no file.
//   - DMA_MAP of a range that is longer than its file answers EINVAL: the pages after the end would
//     fault at the first access.
//   - DMA_LOGGING_START rounds a page size that it cannot use up to a power of two of 4 KiB at least.
//     DMA_LOGGING_REPORT of a range where nothing is mapped answers ENOENT.
//   - An errno above 4095 in a reply of the client's counts as EINVAL: Linux has no such errno.
//   - DMA_MAP wants address, size and offset in multiples of 4 KiB, the page size announced.
//   - GET_REGION_IO_FDS answers that there are none: no client is known to ask.
//   - A region access of 0 bytes is answered by a bare header, as libvfio-user does.
package vfiouser
